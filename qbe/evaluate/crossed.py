"""Crossed pairs: does a ranking by one facet follow that facet where it disagrees with another?

Two candidates of one query are a crossed pair of facets A and B where the one is better for A by at least a
grade, and the other better for B. In most pools the facets agree, so that nDCG does not show whether a
ranking by method is one by method; on crossed pairs a ranking that ignores the facet is right for A exactly
where it is wrong for B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import coverage, scores_of
from qbe.evaluate.results import Evaluation, split_query_id
from qbe.query import HIGHEST
from qbe.runs import Rankings, has_graded_pairs, read_graded_pairs, read_qrels
from qbe.types import Facet
from qbe.util.files import StrPath

GAP = 1.0
"""By how many grades, at least, each of a pair is better for its facet."""

CROSSED = "crossed"

MEASURES = ("right by first", "right by second", "right by both")

DEFINITIONS = {
    name: f"share of crossed pairs ranked {name} facet{'s' if name.endswith('both') else ''}"
    for name in MEASURES
}

FACET_PAIRS = (
    (Facet.METHOD, Facet.BACKGROUND),
    (Facet.METHOD, Facet.RESULT),
    (Facet.RESULT, Facet.BACKGROUND),
)

FacetGrades = Mapping[str, Mapping[str, Mapping[Facet, float]]]
"""Grades of candidates: by query paper, candidate and facet."""

FacetScores = Mapping[tuple[str, Facet], Mapping[str, float]]
"""Scores of ranked candidates, by query paper and facet; a candidate that is not there stands below them."""


class CrossedPair(NamedTuple):
    """Candidates of a query paper: ``first`` is better for the first facet, ``second`` for the second."""

    query: str
    first: str
    second: str


class CrossedAccuracy(NamedTuple):
    """The shares of crossed pairs that are ranked right by the ``first`` facet, by the ``second``, and by
    ``both``; equal scores count half (for both, a half of each that is equal), and a pair of which neither is
    ranked is not ranked right. ``pairs`` counts the pairs.
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
    """1 where the better paper has the higher score, 0 where it has the lower or neither has any, 0.5 where
    they are equal.
    """
    if better not in scores and worse not in scores:
        return 0.0
    high, low = scores.get(better, float("-inf")), scores.get(worse, float("-inf"))
    return 0.5 if high == low else float(high > low)


def crossed_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate a run by its crossed pairs, for each of FACET_PAIRS that has any.

    A scope, such as ``method-background``, is a pair of facets; its queries are the query papers that have
    crossed pairs, with the scope appended. Measures are the shares of pairs ranked ``right by first``,
    ``right by second`` and ``right by both``, over all pairs of the scope; by query over the query's pairs.
    The run's queries are named ``{paper_id}_{facet}``. One that is missing scores as an empty ranking, which
    ranks no pair right; warnings name it, and queries without judgements. Raises FileFormatError where there
    is no crossed pair, and where the run has none of the queries of a facet.
    """
    scores: dict[tuple[str, Facet], dict[str, float]] = {}
    for query_id, by_paper in scores_of(rankings).items():
        query, facet = split_query_id(query_id)
        if facet is not None:
            scores[query, facet] = by_paper
    queries: dict[str, tuple[str, ...]] = {}
    figures: dict[str, dict[str, float | None]] = {name: {} for name in MEASURES}
    per_query: dict[str, dict[str, float]] = {name: {} for name in MEASURES}
    numbers: dict[str, int] = {}
    asked: dict[str, None] = {}  # the queries of the run that count
    for first, second in FACET_PAIRS:
        pairs = crossed_pairs(grades, first, second)
        if not pairs:
            continue
        _check_ranked(pairs, scores, first, second)
        scope = f"{first}-{second}"
        numbers[scope] = len(pairs)
        asked |= dict.fromkeys(f"{pair.query}_{facet}" for facet in (first, second) for pair in pairs)
        by_query: dict[str, list[CrossedPair]] = {}
        for pair in pairs:
            by_query.setdefault(pair.query, []).append(pair)
        queries[scope] = tuple(f"{query}_{scope}" for query in by_query)
        for name, share in zip(MEASURES, crossed_accuracy(pairs, scores, first, second) or (), strict=False):
            figures[name][scope] = share
        for query, query_pairs in by_query.items():
            accuracy = crossed_accuracy(query_pairs, scores, first, second) or ()
            for name, share in zip(MEASURES, accuracy, strict=False):
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


def _check_ranked(pairs: Sequence[CrossedPair], scores: FacetScores, *facets: Facet) -> None:
    for facet in facets:
        if not any((pair.query, facet) in scores for pair in pairs):
            raise FileFormatError(
                f"expected rankings by {facet} for the papers with crossed pairs ({pairs[0].query}, ...), "
                f"found none in the run; give the run's file of {facet} too"
            )


def read_facet_grades(paths: Iterable[StrPath]) -> dict[str, dict[str, dict[Facet, float]]]:
    r"""Grades by query paper, candidate and facet, from graded pairs or from qrels.

    A file of graded pairs is tab-separated with the columns query_id, paper_id, background, method and
    result (others are ignored); in qrels the queries are named ``{paper_id}_{facet}``. The query paper itself
    is left out. Raises FileFormatError for a file of another format, for a qrels query without a facet, for
    grades that are not from 0 to 3, and for a pair that has two different grades for a facet.

    >>> _ = Path("pairs.tsv").write_text(
    ...     "query_id\tpaper_id\tbackground\tmethod\tresult\nq\ta\t0.5\t3\t0\n"
    ... )
    >>> read_facet_grades(["pairs.tsv"])["q"]["a"][Facet.BACKGROUND]
    0.5
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
