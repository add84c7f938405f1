"""``python -m benchmarks.projections``: reranking by projected vectors beside the cross-encoders.

For files of graded pairs NDCG%20 of each query's pool by facet, as a search ranks it; and the time of a query
over the whole index, reranked by each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.common import machine, median_p95, positive, table
from benchmarks.reranking_dev import Grades, read_grades
from qbe import Facet, Pipeline, Query, SearchConfig, _cli, open_index
from qbe.evaluate.csfcube import ndcg_percent
from qbe.index.index import Index
from qbe.search.config import SEPARATE

STAGES: Mapping[str, SearchConfig] = {
    "fused": SearchConfig(rerank="none", separate=SEPARATE),
    "fused, projections": SearchConfig(rerank="projections"),
    "fused, projections of 300": SearchConfig(rerank="projections", rerank_depth=300),
    "fused, projections of 1,000": SearchConfig(rerank="projections", rerank_depth=1000),
    "fused, cascade": SearchConfig(rerank="cascade"),
    "fused, cascade of 100": SearchConfig(rerank="cascade", cascade_depth=100),
    "fused, cross-encoders": SearchConfig(),
}
UNGRADED = ("fused, projections of 300", "fused, projections of 1,000")
"""Stages that are timed alone: pools are not as deep."""
HITS = 20


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.projections", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pairs", type=Path, nargs="*", default=[], metavar="FILE", help="graded pairs")
    parser.add_argument("--queries", type=positive, default=60, help="timed of each kind (default: 60)")
    parser.add_argument(
        "--stages", nargs="+", choices=STAGES, default=list(STAGES), metavar="STAGE", help="default: all"
    )
    return parser


def gains(pipeline: Pipeline, index: Index, grades: Grades) -> list[float]:
    """NDCG%20 by facet and their mean; queries whose grades are all alike in a facet are left out of it."""
    means = []
    for number, facet in enumerate(Facet):
        values = []
        for name, pool in grades.items():
            graded = {paper_id: row[number] for paper_id, row in pool.items() if paper_id in index}
            if name in index and len(set(graded.values())) > 1:
                hits = pipeline.search(
                    Query(index.paper(name), facet), len(graded), list(graded), matches=False
                )
                ranked = [graded[hit.paper_id] for hit in hits]
                values.append(100 * ndcg_percent(ranked, list(graded.values())))
        means.append(float(np.mean(values)))
    return [*means, float(np.mean(means))]


def times(pipeline: Pipeline, index: Index, count: int) -> list[float]:
    """Seconds of each query, by method, warm."""
    ids = index.papers.ids
    papers = (index.paper(paper_id) for paper_id in ids[:: max(1, len(ids) // (2 * count))])
    queries = [Query(paper, Facet.METHOD) for paper in papers if paper.facet_positions(Facet.METHOD)[0]]
    seconds = []
    for number, query in enumerate(queries[: count + 3]):
        begin = time.perf_counter()
        pipeline.search(query, HITS)
        if number >= 3:
            seconds.append(time.perf_counter() - begin)
    return seconds


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(None)
    print(machine(threads, ("faiss-cpu", "numpy", "onnxruntime")))
    rows, timed = [], []
    with open_index(options.index, threads=threads) as index:
        for stage in options.stages:
            with Pipeline.open(index, STAGES[stage]) as pipeline:
                timed.append([stage, " / ".join(median_p95(times(pipeline, index, options.queries)))])
                for path in () if stage in UNGRADED else options.pairs:
                    values = gains(pipeline, index, read_grades(path))
                    rows.append([path.name, stage, *(f"{value:.2f}" for value in values)])
        print(f"{len(index):,} papers\n")
    if rows:
        print(table(["pairs", "stage", "background", "method", "result", "mean"], sorted(rows)) + "\n")
    print(table(["stage", "ms a query / p95"], timed))


if __name__ == "__main__":
    _cli.run("benchmarks.projections", main)
