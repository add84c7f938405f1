"""``python -m benchmarks.filtering``: what filters cost, and how exact filtered rankings are.

An index is made out of a real one (`benchmarks.synthetic`), with postings, and papers marked at random, so
that filters keep known shares of them. The first stages answer the same faceted queries with each filter and
without one, in turn. Their rankings are compared, place by place, with exhaustive ones: BM25's ranking of all
papers without those that do not pass, all that pass scored by their vectors, and the fusion of both.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.answering import timed
from benchmarks.common import machine, median_p95, positive, table
from benchmarks.drawn import drawn, faceted_queries, same_places, shared_papers
from qbe import _cli

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.index.reader import IndexReader
    from qbe.index.rows import Selection
    from qbe.types import Paper

PACKAGES = ("faiss-cpu", "numpy", "pyserini")
SHARES = (1000, 100, 10, 2)
"""Of how many papers one passes."""
STAGES = ("bm25", "dense", "fused")
MARKS = "marks"
ALL = "none"
DEPTH = 1001
"""Papers that each side brings to the fusion."""

Filters = dict[str, "Selection | None"]
"""Papers that pass by the name of a filter; None: all."""

Rankings = Mapping[str, list[int]]
"""Rows of papers, best first, by stage."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.filtering", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="of real papers, by cosine")
    parser.add_argument("--papers", type=positive, default=180_000, help="default: %(default)s")
    parser.add_argument("--queries", type=positive, default=50, help="default: %(default)s")
    parser.add_argument("--rounds", type=positive, default=3, help="default: %(default)s")
    parser.add_argument("--hits", type=positive, nargs="+", default=(20, 1000), help="default: 20 1000")
    parser.add_argument("--faiss", default="auto", help="factory string (default: %(default)s)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the index is made (default: $TMPDIR)")
    parser.add_argument("--made", type=Path, metavar="DIR", help="the index, kept there; used if it exists")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def marked(papers: Iterator[Paper]) -> Iterator[Paper]:
    """The papers, each with the mark of every share that it is of."""
    import numpy as np

    random = np.random.default_rng(0)
    for paper in papers:
        marks = [f"1 in {share}" for share in SHARES if random.integers(share) == 0]
        yield dataclasses.replace(paper, metadata={MARKS: marks})


class Measured:
    """The first stages over one index, its queries, and their exhaustive rankings."""

    def __init__(self, index: Index, reader: IndexReader, queries: int, threads: int) -> None:
        from qbe.encode.aspect import EncodedAspect
        from qbe.parallel import Workers
        from qbe.search.first_stages import BM25Stage, DenseStage, FusedStage
        from qbe.search.stages import EQUAL_WEIGHTS

        self.papers, workers = reader.papers, Workers(threads)
        bm25, dense = BM25Stage(reader, workers), DenseStage(reader, workers)
        fused = FusedStage(reader, workers, [bm25, dense], EQUAL_WEIGHTS)
        self.stages: dict[str, Any] = {"bm25": bm25, "dense": dense, "fused": fused}
        aspects = [query.aspects[0] for query in faceted_queries(index, drawn(index, queries))]
        self.queries = [EncodedAspect.of(aspect, index.vectors(aspect.paper)) for aspect in aspects]

    def ranked(self, stage: str, number: int, k: int, among: Selection | None) -> list[int]:
        """Rows of a query's hits, best first."""
        (hits,) = self.stages[stage].batch_search([self.queries[number]], k, [None], among)
        return self._rows(hits)

    def in_pool(self, stage: str, number: int, rows: Sequence[int]) -> list[int]:
        """Rows of a pool in a query's order."""
        pool = [self.papers.ids[row] for row in rows]
        (hits,) = self.stages[stage].batch_search([self.queries[number]], len(pool), [pool])
        return self._rows(hits)

    def exhaustive(self, number: int, among: Selection | None) -> dict[str, list[int]]:
        """Rows of the papers that pass in a query's order, by stage."""
        of_all = self.ranked("bm25", number, len(self.papers), None)
        bm25 = [row for row in of_all if among is None or among.mask[row]]
        rows = range(len(self.papers)) if among is None else among.rows.tolist()
        dense = self.in_pool("dense", number, rows)
        fused = self.in_pool("fused", number, sorted({*bm25[:DEPTH], *dense[:DEPTH]}))
        return {"bm25": bm25, "dense": dense, "fused": fused}

    def _rows(self, hits: Any) -> list[int]:
        return [self.papers.row(hit.paper_id) for hit in hits]


def rows_of(
    measured: Measured,
    filters: Filters,
    best: Sequence[Mapping[str, Rankings]],
    stage: str,
    k: int,
    rounds: int,
) -> Iterator[list[str]]:
    """The table's rows of a stage for so many hits; ``best`` are the exhaustive rankings of each query."""
    numbers = range(len(measured.queries))
    seconds: dict[str, list[float]] = {name: [] for name in filters}
    first, ranked = dict[str, float](), dict[str, list[list[int]]]()
    for number_of_round in range(rounds + 1):
        for name, among in filters.items():
            search = functools.partial(measured.ranked, stage, k=k, among=among)
            its_seconds, ranked[name] = timed(search, [(number,) for number in numbers])
            first.setdefault(name, its_seconds[0])
            if number_of_round:
                seconds[name] += its_seconds
    for name, among in filters.items():
        expected = [rankings[name][stage][:k] for rankings in best]
        lacking = sum(map(len, expected)) - sum(map(len, ranked[name]))
        yield [
            stage,
            str(k),
            name,
            f"{len(measured.papers if among is None else among):,}",
            f"{1e3 * first[name]:.0f}",
            " / ".join(median_p95(seconds[name])),
            f"{statistics.median(seconds[name]) / statistics.median(seconds[ALL]):.2f}",
            f"{100 * same_places(ranked[name], expected):.2f}",
            f"{100 * shared_papers(ranked[name], expected):.2f}",
            str(lacking),
        ]


HEADER = [
    "stage",
    "hits",
    "filter",
    "papers that pass",
    "first query, ms",
    "ms a query / p95",
    "time / all",
    "same places, %",
    "shared papers, %",
    "hits lacking",
]


def main(argv: list[str]) -> None:
    from benchmarks.synthetic import write_searchable
    from qbe.index.opening import open_index
    from qbe.search.filtering import FilterCache
    from qbe.search.filters import PaperFilter

    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))
    with tempfile.TemporaryDirectory(prefix="qbe-", dir=options.work) as work:
        folder = options.made or Path(work) / "index"
        if not folder.exists():
            with open_index(options.index) as source:
                write_searchable(source, folder, options.papers, options.faiss, threads, marked)
        with open_index(folder, threads=threads) as index, index.reading() as reader:
            passing, filters = FilterCache(reader), Filters({ALL: None})
            for share in SHARES:
                begin = time.perf_counter()
                name = f"1 in {share}"
                filters[name] = passing.of(PaperFilter(where={MARKS: name})).selection
                print(f"{name}: {time.perf_counter() - begin:.2f} s to read what passes")
            measured = Measured(index, reader, options.queries, threads)
            kind = (reader.manifest.dense or {})["ann"]["kind"]
            print(f"{len(index):,} papers, {len(index.sentence_vectors):,} sentences, {kind}\n")
            best = [
                {name: measured.exhaustive(number, among) for name, among in filters.items()}
                for number in range(options.queries)
            ]
            rows = [
                row
                for stage in STAGES
                for k in options.hits
                for row in rows_of(measured, filters, best, stage, k, options.rounds)
            ]
            print(table(HEADER, rows))


if __name__ == "__main__":
    _cli.run("benchmarks.filtering", main)
