"""``python -m benchmarks.list_distance``: how much the first hits of runs differ from each other by facet.

    python -m benchmarks.list_distance --index indexes/arxiv --run runs/dev-2.plain.trec runs/dev-2.mixed.trec

The intra-list distance (Ziegler et al., 2005): 1 less the cosine of two of the first ten hits, by projected
sentence vectors of each facet (`qbe.search.grading.Features.similarities`), means over pairs and
queries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import parsed, table
from qbe import open_index
from qbe.cli import common as _cli
from qbe.runs import read_run
from qbe.search.grading import Grader, open_grader
from qbe.types import Facet, Paper

HITS = 10


def distances(grader: Grader, papers: list[Paper]) -> NDArray[np.float64]:
    """The mean distance of two papers by facet, (3,); there are at least two."""
    upper = np.triu_indices(len(papers), 1)
    mean: NDArray[np.float64] = 1 - grader.features.similarities(papers)[:, *upper].mean(axis=1)
    return mean


def main(argv: list[str]) -> None:
    given: dict[str, Any] = {"required": True, "help": "which has papers of the runs"}
    run: dict[str, Any] = {"type": Path, "required": True, "nargs": "+", "metavar": "FILE"}
    options = parsed("list_distance", __doc__, argv, index=given, run=run)
    rows: list[list[object]] = []
    with open_index(options.index) as index:
        grader = open_grader(index)
        for path in options.run:
            lists = [
                [index.paper(hit.paper_id) for hit in hits[:HITS]]
                for hits in read_run(path).rankings.values()
            ]
            mean = np.mean([distances(grader, papers) for papers in lists if len(papers) > 1], axis=0)
            rows.append([path.stem, *(f"{value:.3f}" for value in mean), f"{mean.mean():.3f}"])
    print(table(["run", *(facet.value for facet in Facet), "mean"], rows))


if __name__ == "__main__":
    _cli.run("benchmarks.list_distance", main)
