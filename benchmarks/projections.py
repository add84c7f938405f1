"""``python -m benchmarks.projections``: reranking by projected vectors beside the cross-encoders.

For files of graded pairs NDCG%20 of each query's pool by facet, as a search ranks it, and the shares of
crossed pairs ranked right (`qbe.evaluate.crossed`); and the time of a query over the whole index, reranked by
each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.common import machine, median_p95, positive, table
from benchmarks.reranking_dev import CROSSED, crossed, figures, held, pool_scores, ranked_by, read_grades
from qbe import CrossEncoder, Facet, Fused, Pipeline, Projections, Query, Stages, _cli, open_index
from qbe.index.index import Index

STAGES: Mapping[str, Stages] = {
    "fused": Stages(Fused()),
    "fused, projections": Fused() >> Projections(),
    "fused, projections of 300": Fused() >> Projections(depth=300),
    "fused, projections of 1,000": Fused() >> Projections(depth=1000),
    "fused, cross-encoders": Fused() >> CrossEncoder(),
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
            with Pipeline(index, STAGES[stage]) as pipeline:
                timed.append([stage, " / ".join(median_p95(times(pipeline, index, options.queries)))])
                for path in () if stage in UNGRADED else options.pairs:
                    grades = held(index, read_grades(path))
                    scores = pool_scores(index, grades, ranked_by(pipeline))
                    means = figures(scores, grades)[len(Facet) + 1 :]
                    cells = [*(f"{value:.2f}" for value in means), *crossed(scores, grades)]
                    rows.append([path.name, stage, *cells])
        print(f"{len(index):,} papers\n")
    if rows:
        columns = ["pairs", "stage", *map(str, Facet), "mean", *CROSSED]
        print(table(columns, sorted(rows)) + "\n")
    print(table(["stage", "ms a query / p95"], timed))


if __name__ == "__main__":
    _cli.run("benchmarks.projections", main)
