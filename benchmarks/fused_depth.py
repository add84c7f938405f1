"""``python -m benchmarks.fused_depth``: how many papers each side of the fused first stage should bring.

Graded queries over an index of many more papers than were graded, without pools: for each depth the nDCG at
20 of the graded papers among the best hundred, the share of the papers of grade 2 or more that are among the
best hundred, how much of the deepest ranking's best 20 and 100 is there, and the time of a query.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.common import machine, median_p95, table
from benchmarks.graded_queries import Grades, Rankings, facet_queries, measured, rankings, read_grades
from qbe import Fused, Pipeline, _cli, open_index

DEPTHS = (1000, 700, 500, 300, 200, 100)
HITS, SHOWN = 100, 20
HEADER = ["depth", "nDCG%20", "recall@100", "same@20", "same@100", "ms / p95"]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.fused_depth", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pairs", type=Path, required=True, nargs="+", metavar="FILE", help="graded pairs")
    return parser


def quality(ranked: Rankings, grades: Grades) -> tuple[float, float]:
    """nDCG%20 of the graded papers, and the recall of those that are wanted: means over queries."""
    gains, recalls = zip(*measured(ranked, grades, HITS).values(), strict=True)
    return float(np.mean(gains)), float(np.mean(recalls))


def same(ranked: Rankings, others: Rankings, count: int) -> float:
    """The mean share of the others' best papers that are among the best."""
    return float(np.mean([len({*ranked[name][:count]} & {*others[name][:count]}) / count for name in others]))


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    grades = {query: pool for path in options.pairs for query, pool in read_grades(path).items()}
    print(machine(_cli.threads(None), ("faiss-cpu", "numpy")))
    with open_index(options.index) as index:
        queries = facet_queries(index, grades)
        print(f"{len(index):,} papers, {len(queries)} queries\n")
        rows: list[list[object]] = []
        deepest: Rankings = {}
        for depth in DEPTHS:
            with Pipeline(index, Fused(depth=depth, background_penalty=0)) as pipeline:
                ranked, seconds = rankings(pipeline, queries, HITS)
            deepest = deepest or ranked
            gain, recall = quality(ranked, grades)
            shares = [f"{same(ranked, deepest, count):.3f}" for count in (SHOWN, HITS)]
            rows.append([depth, f"{gain:.2f}", f"{recall:.4f}", *shares, " / ".join(median_p95(seconds))])
    print(table(HEADER, rows))


if __name__ == "__main__":
    _cli.run("benchmarks.fused_depth", main)
