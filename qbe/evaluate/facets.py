"""Grades by facet, and crossed pairs: does a ranking follow its facet where the facets disagree?

In most pools the facets agree, so that nDCG does not show whether a ranking by method is one by method. Of
two candidates, each better for one facet by at least a grade, a ranking that ignores the facet is right for
the one facet exactly where it is wrong for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import Evaluation, coverage, scores_of
from qbe.query import (
    HIGHEST,
    split_query_id,
)
from qbe.runs import Rankings, has_graded_pairs, read_graded_pairs, read_qrels
from qbe.types import Facet
from qbe.util.files import StrPath

CROSSED = "crossed"

FacetGrades = Mapping[str, Mapping[str, Mapping[Facet, float]]]
"""Grades by query paper, candidate and facet."""

FacetScores = Mapping[tuple[str, Facet], Mapping[str, float]]
"""Scores of candidates by query paper and facet; a candidate that is missing ranks last."""


def read_facet_grades(paths: Iterable[StrPath]) -> dict[str, dict[str, dict[Facet, float]]]:
    """Read grades by query paper, candidate and facet from graded pairs or qrels (``{paper_id}_{facet}``).

    Leaves out the query paper itself. Raises FileFormatError for another format, grades that are not from 0
    to 3, and two different grades of a pair for a facet.
    """
    grades: dict[str, dict[str, dict[Facet, float]]] = {}
    for path in map(Path, paths):
        for query, paper_id, facet, grade in _graded(path):
            if not 0 <= grade <= HIGHEST:
                found = f"{grade:g} for {query} and {paper_id} by {facet}"
                raise FileFormatError(
                    f"{path}: expected grades from 0 to {HIGHEST:g}, found {found}; mend the file"
                )
            if paper_id == query:
                continue
            row = grades.setdefault(query, {}).setdefault(paper_id, {})
            if row.setdefault(facet, grade) != grade:
                raise FileFormatError(
                    f"{path}: expected one grade by {facet} for {query} and {paper_id}, found {row[facet]:g} "
                    f"and {grade:g}; keep one"
                )
    return grades


def _graded(path: Path) -> Iterator[tuple[str, str, Facet, float]]:
    if has_graded_pairs(path):
        for query, pairs in read_graded_pairs(path).items():
            for pair in pairs:
                for facet, grade in zip(Facet, pair.grades, strict=True):
                    yield query, pair.paper_id, facet, grade
        return
    for query_id, by_paper in read_qrels(path).items():
        query, facet_of_query = split_query_id(query_id)
        if facet_of_query is None:
            raise FileFormatError(
                f"{path}: expected queries such as p1_method, found {query_id}; give others"
            )
        for paper_id, grade in by_paper.items():
            yield query, paper_id, facet_of_query, float(grade)


GAP = 1.0
"""By how many grades, at least, each of a pair is better for its facet."""

CROSSED_MEASURES = ("right by first", "right by second", "right by both")
CROSSED_DEFINITIONS = {
    name: f"share of crossed pairs ranked {name} facet{'s' if name.endswith('both') else ''}"
    for name in CROSSED_MEASURES
}
FACET_PAIRS = (
    (Facet.METHOD, Facet.BACKGROUND),
    (Facet.METHOD, Facet.RESULT),
    (Facet.RESULT, Facet.BACKGROUND),
)


class CrossedPair(NamedTuple):
    """Candidates of a query paper: ``first`` is better for the first facet, ``second`` for the second."""

    query: str
    first: str
    second: str


class CrossedAccuracy(NamedTuple):
    """Shares of crossed pairs ranked right by the first facet, the second, and both, and the number of pairs.

    Equal scores count half. A pair of which neither candidate is ranked is not ranked right.
    """

    first: float
    second: float
    both: float
    pairs: int


def crossed_pairs(grades: FacetGrades, first: Facet, second: Facet, gap: float = GAP) -> list[CrossedPair]:
    """Return the pairs that are crossed for two facets, by at least ``gap`` grades each."""
    pairs = []
    for query, pool in grades.items():
        rows = ((paper, row) for paper, row in pool.items() if {first, second} <= row.keys())
        graded = [(paper, row[first], row[second]) for paper, row in rows]
        for (name, by_first, by_second), (other, other_first, other_second) in permutations(graded, 2):
            if by_first - other_first >= gap and other_second - by_second >= gap:
                pairs.append(CrossedPair(query, name, other))
    return pairs


def crossed_accuracy(
    pairs: Sequence[CrossedPair], scores: FacetScores, first: Facet, second: Facet
) -> CrossedAccuracy | None:
    """Count the pairs that the scores by each facet order as its grades do; None without pairs."""
    if not pairs:
        return None
    by_first = [_right(scores.get((pair.query, first), {}), pair.first, pair.second) for pair in pairs]
    by_second = [_right(scores.get((pair.query, second), {}), pair.second, pair.first) for pair in pairs]
    both = sum(right * also_right for right, also_right in zip(by_first, by_second, strict=True))
    count = len(pairs)
    return CrossedAccuracy(sum(by_first) / count, sum(by_second) / count, both / count, count)


def _right(scores: Mapping[str, float], better: str, worse: str) -> float:
    if better not in scores and worse not in scores:
        return 0.0
    high, low = scores.get(better, float("-inf")), scores.get(worse, float("-inf"))
    return 0.5 if high == low else float(high > low)


def crossed_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate a run, whose queries are named ``{paper_id}_{facet}``, by its crossed pairs.

    A scope, such as ``method-background``, is one of FACET_PAIRS; its queries are the query papers with
    crossed pairs.
    """
    scores: dict[tuple[str, Facet], dict[str, float]] = {}
    for query_id, by_paper in scores_of(rankings).items():
        query, facet = split_query_id(query_id)
        if facet is not None:
            scores[query, facet] = by_paper
    queries: dict[str, tuple[str, ...]] = {}
    figures: dict[str, dict[str, float | None]] = {name: {} for name in CROSSED_MEASURES}
    per_query: dict[str, dict[str, float]] = {name: {} for name in CROSSED_MEASURES}
    numbers: dict[str, int] = {}
    asked: dict[str, None] = {}
    for first, second in FACET_PAIRS:
        pairs = crossed_pairs(grades, first, second)
        if not pairs:
            continue
        for facet in (first, second):
            if not any((pair.query, facet) in scores for pair in pairs):
                raise FileFormatError(
                    f"expected rankings by {facet} for the papers with crossed pairs ({pairs[0].query}, "
                    f"...), found none in the run; give the run's file of {facet} too"
                )
            asked |= dict.fromkeys(f"{pair.query}_{facet}" for pair in pairs)
        scope = f"{first}-{second}"
        numbers[scope] = len(pairs)
        by_query: dict[str, list[CrossedPair]] = {}
        for pair in pairs:
            by_query.setdefault(pair.query, []).append(pair)
        queries[scope] = tuple(f"{query}_{scope}" for query in by_query)
        accuracy = crossed_accuracy(pairs, scores, first, second) or ()
        for name, share in zip(CROSSED_MEASURES, accuracy, strict=False):
            figures[name][scope] = share
        for query, query_pairs in by_query.items():
            accuracy = crossed_accuracy(query_pairs, scores, first, second) or ()
            for name, share in zip(CROSSED_MEASURES, accuracy, strict=False):
                per_query[name][f"{query}_{scope}"] = share
    if not queries:
        raise FileFormatError(
            "expected pairs of papers of which each is better for one facet by a grade, found none; give "
            "judgements of at least two facets of the same papers"
        )
    judged: dict[str, dict[str, int]] = {
        f"{query}_{facet}": {} for query, pool in grades.items() for row in pool.values() for facet in row
    }
    _, warnings = coverage({CROSSED: tuple(asked)}, judged, rankings)
    return Evaluation(queries, per_query, figures, warnings, pairs=numbers)
