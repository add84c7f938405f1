"""As asked: how many of the first hits of a search over a whole corpus are what the query asks for?

Pools of some dozens of judged candidates do not show this: over a whole corpus the best of a hundred thousand
unrelated papers compete for the first places. So the first hits of every ranking that is compared are judged
(pooled at rank 10 and shuffled, by assessors who do not see which ranking a paper is from), and a hit without
a judgement counts as not asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean

from qbe.errors import FileFormatError
from qbe.evaluate.crossed import FacetGrades
from qbe.evaluate.csfcube import trec_order
from qbe.evaluate.evaluation import scores_of
from qbe.evaluate.exploration import mean_of
from qbe.evaluate.results import Evaluation
from qbe.query import (
    COMPETITORS,
    OTHER_TO,
    SAME_METHOD_OTHER_PROBLEM,
    SAME_PROBLEM_OTHER_METHOD,
    SIMILAR_FROM,
)
from qbe.runs import Rankings
from qbe.types import Facet

AS_ASKED = "as-asked"

REQUIREMENTS: Mapping[str, tuple[frozenset[Facet], frozenset[Facet]]] = {
    **{facet.value: (frozenset({facet}), frozenset()) for facet in Facet},
    SAME_METHOD_OTHER_PROBLEM: (frozenset({Facet.METHOD}), frozenset({Facet.BACKGROUND})),
    SAME_PROBLEM_OTHER_METHOD: (frozenset({Facet.BACKGROUND}), frozenset({Facet.METHOD})),
    COMPETITORS: (frozenset({Facet.BACKGROUND, Facet.METHOD}), frozenset()),
}
"""What is asked for: the facets that are to be similar, and those that are to be another, by scope."""

_CONTRASTS = {
    f"{liked}-not-{disliked}": scope
    for scope, both in REQUIREMENTS.items()
    for liked, disliked in zip(*both, strict=False)
}
"""Scopes by the names that the same searches have under the protocol of exploration."""

CUTOFFS = (5, 10)

DEFINITIONS: Mapping[str, str] = {
    **{
        f"P@{k}": f"share of the first {k} hits that are as asked: a grade of at least {SIMILAR_FROM:g} in "
        f"the facets that are to be similar, of at most {OTHER_TO:g} in those that are to be another"
        for k in CUTOFFS
    },
    **{
        f"best P@{k}": f"the P@{k} of the best ranking of the judged papers: the smaller of {k} and the "
        f"number that are as asked, divided by {k}"
        for k in CUTOFFS
    },
    **{
        f"mean {facet} grade": f"mean {facet} grade of the judged papers of the first 5 hits"
        for facet in Facet
    },
    "judged@10": "share of the first 10 hits that are judged; those that are not count as not asked for",
}
"""The measures, in the order of a report."""


def as_asked_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate the first hits of rankings over a whole corpus.

    A scope is a key of REQUIREMENTS; the run's queries are named ``{paper_id}_{scope}`` (or
    ``{paper_id}_background-not-method``, which is the same search as a shape). Measures are those
    of DEFINITIONS, means over the query papers; None for scopes of which the run has no query. A candidate is
    judged in a scope where it has grades for all facets of its requirements, and the query papers of a scope
    are those with such a candidate. Warns of query papers that are missing in the run (they score 0), of
    queries of the run without judgements in their scope, and of hits without a judgement. Raises
    FileFormatError where the run has no query of a graded paper.

    >>> from qbe.types import Hit
    >>> rows = {"a": {Facet.METHOD: 2.0}, "b": {Facet.METHOD: 1.0}}
    >>> rankings = {"p_method": (Hit("b", 2.0), Hit("a", 1.0))}
    >>> as_asked_protocol({"p": rows}, rankings).figures["P@5"]["method"]
    0.2
    """
    judged = {scope: _judged(grades, scope) for scope in REQUIREMENTS}
    first = _first_hits(grades, rankings)
    scopes = {scope: hits for scope, hits in first.items() if not judged[scope].keys().isdisjoint(hits)}
    unjudged_scopes = [scope for scope, hits in first.items() if hits and scope not in scopes]
    if unjudged_scopes and not scopes:
        raise FileFormatError(
            f"expected judgements by all facets that {unjudged_scopes[0]} asks for, found none for its "
            "queries; add some"
        )
    if not scopes:
        paper, shape = next(iter(grades), "p1"), next(iter(REQUIREMENTS))
        raise FileFormatError(
            f"expected rankings of the graded papers, of queries such as {paper}_{shape}, found "
            f"{next(iter(rankings), 'no query')}; name the queries of the topics so"
        )
    queries = {scope: tuple(f"{paper}_{scope}" for paper in judged[scope]) for scope in REQUIREMENTS}
    per_query: dict[str, dict[str, float]] = {measure: {} for measure in DEFINITIONS}
    warnings = [f"all queries by {scope} without judgements left out" for scope in unjudged_scopes]
    for scope, of_scope in scopes.items():
        unjudged, papers = 0, judged[scope]
        for paper, candidates in papers.items():
            hits = of_scope.get(paper, [])
            unjudged += sum(hit not in candidates for hit in hits)
            for measure, value in _values(grades[paper], candidates, hits, scope).items():
                per_query[measure][f"{paper}_{scope}"] = value
        if missing := [paper for paper in papers if paper not in of_scope]:
            warnings.append(f"{len(missing)} of {len(papers)} queries by {scope} missing ({missing[0]}, ...)")
        if others := [paper for paper in of_scope if paper not in papers]:
            warnings.append(
                f"queries by {scope} without judgements left out: {len(others)} ({others[0]}, ...)"
            )
        if unjudged:
            warnings.append(f"{unjudged} of the first {CUTOFFS[-1]} hits by {scope} are not judged")
    figures: dict[str, dict[str, float | None]] = {
        measure: {scope: mean_of(by_query, ids) for scope, ids in queries.items()}
        for measure, by_query in per_query.items()
    }
    return Evaluation(queries, per_query, figures, tuple(warnings))


def is_as_asked(row: Mapping[Facet, float], scope: str) -> bool:
    """Whether a paper with these grades is what a query of that scope asks for; a paper that lacks one of the
    grades is not.

    >>> is_as_asked({Facet.METHOD: 2, Facet.BACKGROUND: 1}, "same-method-other-problem")
    True
    """
    similar, other = REQUIREMENTS[scope]
    return all(row.get(facet, 0) >= SIMILAR_FROM for facet in similar) and all(
        facet in row and row[facet] <= OTHER_TO for facet in other
    )


def _judged(grades: FacetGrades, scope: str) -> dict[str, set[str]]:
    """The candidates that are judged in a scope, by query paper; only query papers with any."""
    facets = frozenset[Facet]().union(*REQUIREMENTS[scope])
    judged = {
        paper: {name for name, row in rows.items() if facets <= row.keys()} for paper, rows in grades.items()
    }
    return {paper: names for paper, names in judged.items() if names}


def _first_hits(grades: FacetGrades, rankings: Rankings) -> dict[str, dict[str, list[str]]]:
    """The first hits of each graded paper, without the paper itself, by scope."""
    first: dict[str, dict[str, list[str]]] = {scope: {} for scope in REQUIREMENTS}
    for query_id, scores in scores_of(rankings).items():
        paper, _, scope = query_id.rpartition("_")
        scope = _CONTRASTS.get(scope, scope)
        if scope in first and paper in first[scope]:
            raise FileFormatError(
                f"expected one ranking of paper {paper} by {scope}, found {query_id} too; put them in runs "
                "of their own"
            )
        if scope in first and paper in grades:
            hits = [hit for hit in trec_order(scores) if hit != paper]
            first[scope][paper] = hits[: CUTOFFS[-1]]
    return first


def _values(
    rows: Mapping[str, Mapping[Facet, float]], judged: Collection[str], hits: list[str], scope: str
) -> dict[str, float]:
    """The measures of one query, of whose candidates some are ``judged`` in the scope; means of grades only
    where a hit is graded.
    """
    good = {paper for paper, row in rows.items() if is_as_asked(row, scope)}
    first = [rows[hit] for hit in hits[: CUTOFFS[0]] if hit in rows]
    values = {f"P@{k}": sum(hit in good for hit in hits[:k]) / k for k in CUTOFFS}
    values |= {f"best P@{k}": min(k, len(good)) / k for k in CUTOFFS}
    for facet in Facet:
        if of_facet := [row[facet] for row in first if facet in row]:
            values[f"mean {facet} grade"] = fmean(of_facet)
    return values | {"judged@10": sum(hit in judged for hit in hits) / max(1, len(hits))}
