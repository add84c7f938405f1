"""First hits of lists: how many are as asked, and do they come from all corners?

``as-asked`` counts, over a whole corpus, a hit without a judgement as not asked for: the best of many
unrelated papers compete for the first places, which pools of some dozens of candidates do not show.
``diversity`` scores any list for a paper; the corners are the shapes of exploration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import ALL, Evaluation, mean_of, scores_of
from qbe.evaluate.exploration import CUTOFF, ndcg
from qbe.evaluate.facets import FacetGrades
from qbe.evaluate.measures import trec_order
from qbe.query import (
    COMPETITORS,
    OTHER_TO,
    SAME_METHOD_OTHER_PROBLEM,
    SAME_PROBLEM_OTHER_METHOD,
    SHAPES,
    SIMILAR_FROM,
    split_query_id,
)
from qbe.runs import Rankings
from qbe.types import Facet

AS_ASKED, DIVERSITY = "as-asked", "diversity"

REQUIREMENTS: Mapping[str, tuple[frozenset[Facet], frozenset[Facet]]] = {
    **{facet.value: (frozenset({facet}), frozenset()) for facet in Facet},
    SAME_METHOD_OTHER_PROBLEM: (frozenset({Facet.METHOD}), frozenset({Facet.BACKGROUND})),
    SAME_PROBLEM_OTHER_METHOD: (frozenset({Facet.BACKGROUND}), frozenset({Facet.METHOD})),
    COMPETITORS: (frozenset({Facet.BACKGROUND, Facet.METHOD}), frozenset()),
}
"""The facets that should be similar, and those that should differ, by scope."""

_CONTRASTS = {
    f"{liked}-not-{disliked}": scope
    for scope, both in REQUIREMENTS.items()
    for liked, disliked in zip(*both, strict=False)
}
AS_ASKED_CUTOFFS = (5, 10)
AS_ASKED_DEFINITIONS: Mapping[str, str] = {
    **{
        f"P@{k}": f"share of the first {k} hits that are as asked: a grade of at least {SIMILAR_FROM:g} in "
        f"the facets that are to be similar, of at most {OTHER_TO:g} in those that are to be another"
        for k in AS_ASKED_CUTOFFS
    },
    **{
        f"best P@{k}": f"the P@{k} of the best ranking of the judged papers: the smaller of {k} and the "
        f"number that are as asked, divided by {k}"
        for k in AS_ASKED_CUTOFFS
    },
    **{
        f"mean {facet} grade": f"mean {facet} grade of the judged papers of the first 5 hits"
        for facet in Facet
    },
    "judged@10": "share of the first 10 hits that are judged; those that are not count as not asked for",
}


def is_as_asked(row: Mapping[Facet, float], scope: str) -> bool:
    """Return True if these grades are as a query of the scope asks; False where one is missing."""
    similar, other = REQUIREMENTS[scope]
    return all(row.get(facet, 0) >= SIMILAR_FROM for facet in similar) and all(
        facet in row and row[facet] <= OTHER_TO for facet in other
    )


def as_asked_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate the first hits of rankings over a whole corpus.

    A scope is a key of REQUIREMENTS; queries are named ``{paper_id}_{scope}`` or
    ``{paper_id}_background-not-method``. A candidate is judged in a scope where it has grades for all facets
    that the scope asks for.
    """
    judged: dict[str, dict[str, set[str]]] = {}
    for scope, requirements in REQUIREMENTS.items():
        facets = frozenset[Facet]().union(*requirements)
        of_scope = {
            p: {name for name, row in rows.items() if facets <= row.keys()} for p, rows in grades.items()
        }
        judged[scope] = {paper: names for paper, names in of_scope.items() if names}
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
    per_query: dict[str, dict[str, float]] = {measure: {} for measure in AS_ASKED_DEFINITIONS}
    warnings = [f"all queries by {scope} without judgements left out" for scope in unjudged_scopes]
    for scope, ranked in scopes.items():
        unjudged, papers = 0, judged[scope]
        for paper, candidates in papers.items():
            hits = ranked.get(paper, [])
            unjudged += sum(hit not in candidates for hit in hits)
            for measure, value in _as_asked_values(grades[paper], candidates, hits, scope).items():
                per_query[measure][f"{paper}_{scope}"] = value
        if missing := [paper for paper in papers if paper not in ranked]:
            warnings.append(f"{len(missing)} of {len(papers)} queries by {scope} missing ({missing[0]}, ...)")
        if others := [paper for paper in ranked if paper not in papers]:
            warnings.append(
                f"queries by {scope} without judgements left out: {len(others)} ({others[0]}, ...)"
            )
        if unjudged:
            warnings.append(f"{unjudged} of the first {AS_ASKED_CUTOFFS[-1]} hits by {scope} are not judged")
    figures: dict[str, dict[str, float | None]] = {
        measure: {scope: mean_of(by_query, ids) for scope, ids in queries.items()}
        for measure, by_query in per_query.items()
    }
    return Evaluation(queries, per_query, figures, tuple(warnings))


def _first_hits(grades: FacetGrades, rankings: Rankings) -> dict[str, dict[str, list[str]]]:
    """Return the first hits of each graded paper, without the paper itself, by scope."""
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
            first[scope][paper] = hits[: AS_ASKED_CUTOFFS[-1]]
    return first


def _as_asked_values(
    rows: Mapping[str, Mapping[Facet, float]], judged: Collection[str], hits: list[str], scope: str
) -> dict[str, float]:
    good = {paper for paper, row in rows.items() if is_as_asked(row, scope)}
    first = [rows[hit] for hit in hits[: AS_ASKED_CUTOFFS[0]] if hit in rows]
    values = {f"P@{k}": sum(hit in good for hit in hits[:k]) / k for k in AS_ASKED_CUTOFFS}
    values |= {f"best P@{k}": min(k, len(good)) / k for k in AS_ASKED_CUTOFFS}
    for facet in Facet:
        if of_facet := [row[facet] for row in first if facet in row]:
            values[f"mean {facet} grade"] = fmean(of_facet)
    return values | {"judged@10": sum(hit in judged for hit in hits) / max(1, len(hits))}


ALPHA = 0.5
ALPHA_NDCG = f"alpha-nDCG@{CUTOFF}"
DIVERSITY_DEFINITIONS: Mapping[str, str] = {
    ALPHA_NDCG: f"alpha-nDCG at rank {CUTOFF} (Clarke et al., 2008), alpha {ALPHA:g}, over the corners "
    f"{', '.join(SHAPES)}",
    f"corners@{CUTOFF}": f"share of the corners with a judged paper that are among the first {CUTOFF} "
    "(S-recall; Zhai et al., 2003)",
    f"P@{CUTOFF}": f"share of the first {CUTOFF} hits that are in a corner",
    f"nDCG@{CUTOFF}": f"normalized discounted cumulated gain at rank {CUTOFF}: the gain is the mean of the "
    "grades of all facets",
    **{
        f"{facet} spread": f"mean difference of the {facet} grades of two of the first {CUTOFF} hits"
        for facet in Facet
    },
}


def alpha_ndcg(
    ranked: Sequence[Collection[str]], pool: Sequence[Collection[str]], alpha: float = ALPHA
) -> float:
    """Compute alpha-nDCG at rank 10 (Clarke et al., 2008, eqs. 5 to 7), in [0, 1].

    Args:
        ranked: subtopics of the retrieved papers in rank order.
        pool: subtopics of all judged papers; the ideal list is found greedily, as usual.
        alpha: a paper is worth ``(1 - alpha) ** n`` for a subtopic that n papers above it have.

    >>> round(alpha_ndcg([{"a"}, {"a"}], [{"a"}, {"a"}, {"b"}]), 3)  # (1 + .5/1.585) / (1 + 1/1.585 + .5/2)
    0.699
    """
    seen: dict[str, int] = {}

    def gain(subtopics: Collection[str]) -> float:
        return math.fsum((1 - alpha) ** seen.get(subtopic, 0) for subtopic in subtopics)

    def dcg(papers: Sequence[Collection[str]]) -> float:
        seen.clear()
        total = 0.0
        for rank, subtopics in enumerate(papers, start=1):
            total += gain(subtopics) / math.log2(rank + 1)
            seen.update({subtopic: seen.get(subtopic, 0) + 1 for subtopic in subtopics})
        return total

    left = [set(each) for each in pool if each]
    ideal: list[set[str]] = []
    while left and len(ideal) < CUTOFF:
        best = max(left, key=gain)
        left.remove(best)
        ideal.append(best)
        seen.update({subtopic: seen.get(subtopic, 0) + 1 for subtopic in best})
    highest = dcg(ideal)
    return dcg(ranked[:CUTOFF]) / highest if highest else 0.0


def diversity_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate the first hits of lists by the corners that they come from.

    The queries are the query papers with a judged candidate in a corner; a run has one list for each,
    ``{paper_id}`` or ``{paper_id}_{anything}``. Only judged candidates count.
    """
    corners = {
        paper: {name: {shape for shape in SHAPES if is_as_asked(row, shape)} for name, row in rows.items()}
        for paper, rows in grades.items()
    }
    papers = [paper for paper, rows in corners.items() if any(rows.values())]
    if not papers:
        raise FileFormatError(
            "expected papers as one of the shapes of exploration asks, found none; give judgements of "
            "background and method of the same papers"
        )
    ranked: dict[str, list[str]] = {}
    others = []
    for query_id, scores in scores_of(rankings).items():
        paper = query_id if query_id in grades else split_query_id(query_id)[0]
        paper = paper if paper in grades else query_id.rpartition("_")[0]
        if paper not in grades:
            others.append(query_id)
        elif paper in ranked:
            raise FileFormatError(
                f"expected one ranking of paper {paper}, found {query_id} too; put them in runs of their own"
            )
        else:
            ranked[paper] = [name for name in trec_order(scores) if name in grades[paper]]
    missing = [paper for paper in papers if paper not in ranked]
    if len(missing) == len(papers):
        raise FileFormatError(
            f"expected rankings of the graded papers, of queries such as {papers[0]}, found "
            f"{next(iter(rankings), 'no query')}; give grades and run of the same papers"
        )
    values = {p: _diversity_values(grades[p], corners[p], ranked.get(p, [])[:CUTOFF]) for p in papers}
    per_query = {name: {paper: values[paper][name] for paper in papers} for name in DIVERSITY_DEFINITIONS}
    warnings = [f"{len(missing)} of {len(papers)} papers missing ({missing[0]}, ...)"] if missing else []
    if others:
        warnings.append(f"queries without judgements left out: {len(others)} ({others[0]}, ...)")
    figures: dict[str, dict[str, float | None]] = {
        name: {ALL: fmean(by_paper.values())} for name, by_paper in per_query.items()
    }
    return Evaluation({ALL: tuple(papers)}, per_query, figures, tuple(warnings))


def _diversity_values(
    rows: Mapping[str, Mapping[Facet, float]], corners: Mapping[str, set[str]], hits: Sequence[str]
) -> dict[str, float]:
    found = [corners[hit] for hit in hits]
    gains = {name: fmean(row.get(facet, 0.0) for facet in Facet) for name, row in rows.items()}
    pairs = list(combinations(hits, 2))
    values = {
        ALPHA_NDCG: alpha_ndcg(found, list(corners.values())),
        f"corners@{CUTOFF}": len(set().union(*found)) / len(set().union(*corners.values())),
        f"P@{CUTOFF}": sum(map(bool, found)) / CUTOFF,
        f"nDCG@{CUTOFF}": ndcg([gains[hit] for hit in hits], gains.values()),
    }
    for facet in Facet:
        spread = [abs(rows[one].get(facet, 0.0) - rows[other].get(facet, 0.0)) for one, other in pairs]
        values[f"{facet} spread"] = fmean(spread) if spread else 0.0
    return values
