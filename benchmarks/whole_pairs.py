"""``python -m benchmarks.whole_pairs``: graded queries over a whole corpus, without pools, reranked.

For each stage the NDCG%20 of the graded papers among the best hundred, as CSFCube's scorer computes it with
all graded papers of a query as its pool; its difference to fused, with the standard error of the mean over
queries; and the share of the papers of grade 2 or more that are among the best 20.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.common import machine, table
from benchmarks.graded_queries import facet_queries, measured
from benchmarks.projections import STAGES, UNGRADED
from benchmarks.reranking_dev import read_grades, standard_error
from qbe import Facet, Pipeline, _cli, open_index

HITS, SHOWN = 100, 20
COMPARED = tuple(name for name in STAGES if name not in UNGRADED)
DEFAULT = ("fused", "fused, projections", "fused, cross-encoders")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.whole_pairs", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pairs", type=Path, required=True, nargs="+", metavar="FILE", help="graded pairs")
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=COMPARED,
        default=DEFAULT,
        metavar="STAGE",
        help=f"the first is what others are compared with (default: {'; '.join(DEFAULT)})",
    )
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(None)
    print(machine(threads, ("faiss-cpu", "numpy", "onnxruntime")))
    with open_index(options.index, threads=threads) as index:
        rows = []
        for path in options.pairs:
            grades = read_grades(path)
            queries = facet_queries(index, grades)
            first = None
            for stage in options.stages:
                with Pipeline(index, STAGES[stage]) as pipeline:
                    ranked = pipeline.batch_search(list(queries.values()), HITS, matches=False)
                ids = [[hit.paper_id for hit in hits] for hits in ranked]
                figures = measured(dict(zip(queries, ids, strict=True)), grades, SHOWN)
                first = first or figures
                gains = {
                    facet: [gain for (_, each), (gain, _) in figures.items() if each is facet]
                    for facet in Facet
                }
                gained = np.array([figures[query][0] - first[query][0] for query in first])
                rows.append(
                    [
                        path.name,
                        stage,
                        *(f"{np.mean(gains[facet]):.2f}" for facet in Facet),
                        f"{np.mean([gain for gain, _ in figures.values()]):.2f}",
                        f"{gained.mean():+.2f} ({standard_error(gained):.2f})",
                        f"{np.mean([recall for _, recall in figures.values()]):.3f}",
                    ]
                )
        print(f"{len(index):,} papers\n")
    header = ["pairs", "stage", *map(str, Facet), "all", f"to {options.stages[0]}", f"recall@{SHOWN}"]
    print(table(header, rows))


if __name__ == "__main__":
    _cli.run("benchmarks.whole_pairs", main)
