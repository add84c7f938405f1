"""Rank correlation of scores with the grades of graded lists."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from qbe.errors import CorpusError
from qbe.models.encode.pooling import Floats
from qbe.runs import GradedLists
from qbe.types import Facet


def spearman(scores: Sequence[float], grades: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where all grades are equal, 0 where only all scores are.

    >>> spearman([0.1, 0.3, 0.2], [1, 3, 2])
    1.0
    """
    if len(set(grades)) < 2:
        return None
    return float(spearmanr(scores, grades).statistic) if len(set(scores)) > 1 else 0.0


def facet_correlations(lists: Iterable[tuple[Floats, Sequence[Sequence[float]]]]) -> list[float]:
    """For each facet the mean over lists of the correlation of scores (candidates, 3) and grades.

    Lists whose grades for a facet are all equal are left out there; NaN where all are (`check_dev` prevents
    that).

    >>> scores, grades = np.array([[0.1, 3.0, 0.5], [0.3, 2.0, 0.0]]), [(1, 1, 2), (3, 2, 2)]
    >>> np.round(facet_correlations([(scores, grades)]), 6).tolist()
    [1.0, -1.0, nan]
    """
    values: list[list[float]] = [[] for _ in Facet]
    for scores, grades in lists:
        for of_facet, column, truth in zip(values, scores.T, zip(*grades, strict=True), strict=True):
            correlation = spearman(column.tolist(), truth)
            if correlation is not None:
                of_facet.append(correlation)
    return [float(np.mean(of_facet)) if of_facet else math.nan for of_facet in values]


def check_dev(lists: GradedLists, source: Path) -> None:
    """Check that scores can be compared with the grades of lists from the file ``source``, by each facet.

    Raises CorpusError where no list has two different grades for a facet.

    >>> from qbe.runs import GradedPair
    >>> lists = {"q": [GradedPair("a", (3, 1, 0)), GradedPair("b", (1, 2, 0))]}
    >>> check_dev(lists, Path("dev.tsv"))
    Traceback (most recent call last):
    ...
    qbe.errors.CorpusError: dev.tsv: expected a query with two different grades for each facet, found none for
    result; give more pairs as `dev`
    """
    ordered = {
        place
        for pairs in lists.values()
        for place in range(len(Facet))
        if len({pair.grades[place] for pair in pairs}) > 1
    }
    missing = [str(facet) for place, facet in enumerate(Facet) if place not in ordered]
    if missing:
        raise CorpusError(
            f"{source}: expected a query with two different grades for each facet, found none for "
            f"{', '.join(missing)}; give more pairs as `dev`"
        )
