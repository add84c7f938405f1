"""``python -m benchmarks.whole_pairs``: graded queries over a whole corpus, without pools, reranked.

For each stage the NDCG%20 of the graded papers among the best hundred, as CSFCube's scorer computes it with
all graded papers of a query as its pool; its difference to fused, with the standard error of the mean over
queries; the share of the papers of grade 2 or more that are among the best 20; and the time of a query.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.common import machine, median_p95, table
from benchmarks.graded_queries import facet_queries, measured, rankings, read_grades
from qbe import Facet, Fused, Pipeline, Projections, Stages, _cli, open_index

STAGES: Mapping[str, Stages] = {
    "fused": Stages(Fused()),
    "fused, projections": Fused() >> Projections(),
}
"""The first is what the others are compared with."""
HITS, SHOWN = 100, 20


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.whole_pairs", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pairs", type=Path, required=True, nargs="+", metavar="FILE", help="graded pairs")
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
            first: Mapping[tuple[str, Facet], tuple[float, float]] = {}
            for name, stages in STAGES.items():
                with Pipeline(index, stages) as pipeline:
                    ranked, seconds = rankings(pipeline, queries, HITS)
                figures = measured(ranked, grades, SHOWN)
                first = first or figures
                gained = np.array([figures[query][0] - first[query][0] for query in first])
                error = gained.std(ddof=1) / np.sqrt(len(gained))
                by_facet = [
                    np.mean([gain for (_, each), (gain, _) in figures.items() if each is facet])
                    for facet in Facet
                ]
                gain, recall = np.mean([*figures.values()], axis=0)
                quality = [
                    *(f"{mean:.2f}" for mean in (*by_facet, gain)),
                    f"{gained.mean():+.2f} ({error:.2f})",
                ]
                rows.append([path.name, name, *quality, f"{recall:.3f}", " / ".join(median_p95(seconds))])
        print(f"{len(index):,} papers\n")
    header = ["pairs", "stage", *map(str, Facet), "all", f"to {next(iter(STAGES))}", f"recall@{SHOWN}"]
    print(table([*header, "ms / p95"], rows))


if __name__ == "__main__":
    _cli.run("benchmarks.whole_pairs", main)
