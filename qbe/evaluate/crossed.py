"""Crossed pairs: does a ranking by one facet follow that facet where it disagrees with another?

Two candidates of one query are a crossed pair of facets A and B where the one is better for A by at least a
grade, and the other better for B. In most pools the facets agree, so that nDCG does not show whether a
ranking by method is one by method; on crossed pairs a ranking that ignores the facet is right for A exactly
where it is wrong for B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from qbe.types import Facet

GAP = 1.0
"""By how many grades, at least, each of a pair is better for its facet."""

FACET_PAIRS = (
    (Facet.METHOD, Facet.BACKGROUND),
    (Facet.METHOD, Facet.RESULT),
    (Facet.RESULT, Facet.BACKGROUND),
)

FacetGrades = Mapping[str, Mapping[str, Mapping[Facet, float]]]
"""Grades of candidates: by query paper, candidate and facet."""

FacetScores = Mapping[tuple[str, Facet], Mapping[str, float]]
"""Scores of candidates, by query paper and facet; a candidate that is not there has the lowest."""


class CrossedPair(NamedTuple):
    """Candidates of a query paper: ``first`` is better for the first facet, ``second`` for the second."""

    query: str
    first: str
    second: str


class CrossedAccuracy(NamedTuple):
    """The shares of crossed pairs that are ranked right by the ``first`` facet, by the ``second``, and by
    ``both``; equal scores count half (for both, a half of each that is equal). ``pairs`` counts the pairs.
    """

    first: float
    second: float
    both: float
    pairs: int


def crossed_pairs(grades: FacetGrades, first: Facet, second: Facet, gap: float = GAP) -> list[CrossedPair]:
    """The pairs that are crossed for two facets, by at least ``gap`` grades each, in the order of the grades.

    Candidates without a grade for either facet are left out.

    >>> a, b = {Facet.METHOD: 2, Facet.BACKGROUND: 0}, {Facet.METHOD: 1, Facet.BACKGROUND: 3}
    >>> crossed_pairs({"q": {"a": a, "b": b}}, Facet.METHOD, Facet.BACKGROUND)
    [CrossedPair(query='q', first='a', second='b')]
    """
    return list(_pairs(grades, first, second, gap))


def _pairs(grades: FacetGrades, first: Facet, second: Facet, gap: float) -> Iterator[CrossedPair]:
    for query, pool in grades.items():
        rows = ((paper, row) for paper, row in pool.items() if {first, second} <= row.keys())
        graded = [(paper, row[first], row[second]) for paper, row in rows]
        for (name, by_first, by_second), (other, other_first, other_second) in permutations(graded, 2):
            if by_first - other_first >= gap and other_second - by_second >= gap:
                yield CrossedPair(query, name, other)


def crossed_accuracy(
    pairs: Sequence[CrossedPair], scores: FacetScores, first: Facet, second: Facet
) -> CrossedAccuracy | None:
    """How many of the pairs the scores by each facet put in the order of its grades; None without pairs.

    >>> pairs = [CrossedPair("q", "a", "b")]
    >>> scores = {("q", Facet.METHOD): {"a": 2.0, "b": 1.0}, ("q", Facet.BACKGROUND): {"a": 0.5, "b": 0.5}}
    >>> crossed_accuracy(pairs, scores, Facet.METHOD, Facet.BACKGROUND)
    CrossedAccuracy(first=1.0, second=0.5, both=0.5, pairs=1)
    """
    if not pairs:
        return None
    by_first = [_right(scores.get((pair.query, first), {}), pair.first, pair.second) for pair in pairs]
    by_second = [_right(scores.get((pair.query, second), {}), pair.second, pair.first) for pair in pairs]
    both = sum(right * also_right for right, also_right in zip(by_first, by_second, strict=True))
    count = len(pairs)
    return CrossedAccuracy(sum(by_first) / count, sum(by_second) / count, both / count, count)


def _right(scores: Mapping[str, float], better: str, worse: str) -> float:
    """1 where the better paper has the higher score, 0 where it has the lower, 0.5 where they are equal."""
    high, low = scores.get(better, float("-inf")), scores.get(worse, float("-inf"))
    return 0.5 if high == low else float(high > low)
