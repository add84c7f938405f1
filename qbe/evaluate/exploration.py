"""Exploration: does a ranking for "same problem, other method" put what was asked for first?

A search of this kind has a paper, a facet that is liked and one that is disliked. A candidate's gain is by
how much its grade for the liked facet exceeds that for the disliked one; it is relevant where it is similar
by the one and unrelated by the other. A ranking by the liked facet alone is scored in the same way, so that
the difference is what the disliked facet adds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

from qbe.errors import FileFormatError
from qbe.evaluate.crossed import FacetGrades
from qbe.evaluate.csfcube import trec_order
from qbe.evaluate.evaluation import coverage, incomplete, pool_scores
from qbe.evaluate.measures import parse_measures, per_query_values
from qbe.evaluate.results import Evaluation, split_query_id
from qbe.query import SHAPES
from qbe.runs import Rankings
from qbe.types import Facet, Hit

EXPLORATION = "exploration"

SCOPES = (
    (Facet.BACKGROUND, Facet.METHOD),
    (Facet.METHOD, Facet.BACKGROUND),
    (Facet.BACKGROUND, Facet.RESULT),
    (Facet.RESULT, Facet.BACKGROUND),
    (Facet.METHOD, Facet.RESULT),
    (Facet.RESULT, Facet.METHOD),
)
"""The facet that is liked, and the one that is disliked."""

_FACETS = "|".join(facet.value for facet in Facet)
_OF_SHAPES = {name: tuple(weights) for name, weights in SHAPES.items() if min(weights.values()) < 0}
"""The facet that is liked, and the one that is disliked, by the shape that is the same search."""

_CONTRAST = re.compile(rf"(.+)_({_FACETS})-not-({_FACETS})")

LIKED_FROM, DISLIKED_TO = 2.0, 0.5
"""A relevant paper has at least the one grade for the liked facet, at most the other for the disliked one."""

CUTOFF = 10

NDCG = f"nDCG@{CUTOFF}"
_BINARY = (f"P@{CUTOFF}", "RR")
"""Measures of relevant papers, by their names in ir-measures."""

_RELEVANT = f"liked >= {LIKED_FROM:g}, disliked <= {DISLIKED_TO:g}"

DEFINITIONS: Mapping[str, str] = {
    NDCG: f"normalized discounted cumulated gain at rank {CUTOFF}: the gain is the grade of the liked facet "
    "minus that of the disliked one, at least 0; discounts 1/log2(rank + 1)",
    _BINARY[0]: f"share of relevant papers ({_RELEVANT}) among the first {CUTOFF}, over the queries with any",
    _BINARY[1]: f"reciprocal rank of the first relevant paper ({_RELEVANT}), over the queries with any",
}
"""The measures, in the order of a report."""


class ContrastGain(NamedTuple):
    """Gain of a candidate for a query that favours one facet and penalizes another."""

    gain: float
    relevant: bool


class FacetContrast(NamedTuple):
    """What the id of a query says: a paper, the facet that is liked, and the one that is disliked, if any."""

    paper_id: str
    liked: Facet
    disliked: Facet | None = None


def exploration_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate a run that is to find what resembles a paper by one facet and differs by another.

    A scope, such as ``background-not-method``, is one of SCOPES; its queries are the query papers with a
    candidate of positive gain, with the scope appended. A query's ranking is that of the run's query
    ``1*p_background&-0.5*p_method`` (any weights) or ``p_background-not-method``, where the run has none that
    of ``p_background``; of it count the query's judged candidates. One that is missing counts as not
    retrieved, and a query that is missing scores 0; there are warnings of both.

    Raises FileFormatError where no candidate has a positive gain, where the run has none of the queries, and
    where it has two rankings for one of them.

    >>> rows = {"a": {Facet.BACKGROUND: 3, Facet.METHOD: 3}, "b": {Facet.BACKGROUND: 2, Facet.METHOD: 0}}
    >>> rankings = {"1*p_background&-1*p_method": (Hit("a", 1.0), Hit("b", 0.5))}
    >>> exploration_protocol({"p": rows}, rankings).figures["RR"]
    {'background-not-method': 0.5}
    """
    pools: dict[str, dict[str, ContrastGain]] = {}
    contrasts: dict[str, dict[str, FacetContrast]] = {}
    for liked, disliked in SCOPES:
        scope = f"{liked}-not-{disliked}"
        for paper, pool in judged_pools(grades, liked, disliked).items():
            query = f"{paper}_{scope}"
            pools[query] = pool
            contrasts.setdefault(scope, {})[query] = FacetContrast(paper, liked, disliked)
    if not pools:
        raise FileFormatError(
            "expected papers with a higher grade for one facet than for another, found none; give judgements "
            "of at least two facets of the same papers"
        )
    scopes = {scope: tuple(of_scope) for scope, of_scope in contrasts.items()}
    relevant = {
        query: {name: int(row.relevant) for name, row in pool.items()} for query, pool in pools.items()
    }
    with_relevant = {
        scope: tuple(q for q in ids if any(relevant[q].values())) for scope, ids in scopes.items()
    }
    ranked_by, not_run, warnings = _rankings(rankings, contrasts)
    ranked = {scope: queries for scope, queries in scopes.items() if scope not in not_run}
    others = {query: hits for query, hits in rankings.items() if _is_other(query, grades, pools)}
    _, missing = coverage(ranked, relevant, others | ranked_by)
    scores = pool_scores(relevant, ranked_by)
    binary = {query: relevant[query] for scope in ranked for query in with_relevant[scope]}
    values = {
        NDCG: {q: _gain_ndcg(pools[q], scores.get(q, {})) for queries in ranked.values() for q in queries},
        **per_query_values(parse_measures(_BINARY), binary, scores),
    }
    figures = {
        measure: {scope: mean_of(by_query, queries) for scope, queries in scopes.items()}
        for measure, by_query in values.items()
    }
    warnings += (*missing, *incomplete(relevant, scores))
    return Evaluation(scopes, values, figures, warnings, with_relevant=with_relevant)


def judged_pools(grades: FacetGrades, liked: Facet, disliked: Facet) -> dict[str, dict[str, ContrastGain]]:
    """The candidates with grades for both facets, by query paper; only query papers with a positive gain.

    >>> a, b = {Facet.METHOD: 2.5, Facet.RESULT: 0.5}, {Facet.METHOD: 1, Facet.RESULT: 2}
    >>> judged_pools({"p": {"a": a, "b": b}}, Facet.METHOD, Facet.RESULT)
    {'p': {'a': ContrastGain(gain=2.0, relevant=True), 'b': ContrastGain(gain=0.0, relevant=False)}}
    """
    pools = {
        paper: {
            candidate: _judged(row[liked], row[disliked])
            for candidate, row in rows.items()
            if candidate != paper and {liked, disliked} <= row.keys()
        }
        for paper, rows in grades.items()
    }
    return {paper: pool for paper, pool in pools.items() if any(judged.gain > 0 for judged in pool.values())}


def _judged(liked: float, disliked: float) -> ContrastGain:
    return ContrastGain(max(0.0, liked - disliked), liked >= LIKED_FROM and disliked <= DISLIKED_TO)


def ndcg(ranked: Sequence[float], pool: Collection[float]) -> float:
    """Compute nDCG at rank 10 with linear gains and discounts 1/log2(rank + 1), in [0, 1].

    Args:
        ranked: gains of the retrieved papers in rank order.
        pool: gains of all judged papers; 0 is returned where none is positive.

    >>> round(ndcg([0.0, 3.0], [3.0, 0.0, 1.0]), 3)  # (3 / log2(3)) / (3 + 1 / log2(3))
    0.521
    """
    ideal = _dcg(sorted(pool, reverse=True))
    return _dcg(ranked) / ideal if ideal else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:CUTOFF], start=1))


def contrast_of(query_id: str) -> FacetContrast | None:
    """What a query's id, as `qbe.query.Query.query_id` forms it, asks for; None where it is something else.

    Those are one facet of a paper, two of which the one has a positive and the other a negative weight, and
    names such as ``p_background-not-method`` or ``p_same-problem-other-method``, which asks for the same.

    >>> contrast_of("1*a%26b_background&-0.5*a%26b_method")
    FacetContrast(paper_id='a&b', liked=<Facet.BACKGROUND: 'background'>, disliked=<Facet.METHOD: 'method'>)
    >>> contrast_of("p_method").disliked, contrast_of("1*p_method&1*p_result")
    (None, None)
    """
    if match := _CONTRAST.fullmatch(query_id):
        return FacetContrast(_unescaped(match[1]), Facet(match[2]), Facet(match[3]))
    paper, _, shape = query_id.rpartition("_")
    if shape in _OF_SHAPES:
        return FacetContrast(_unescaped(paper), *_OF_SHAPES[shape])
    parts = query_id.split("&")
    aspects = list(_weighted_aspects(parts))
    if len(parts) == len(aspects) == 2:
        (low, paper, disliked), (high, other, liked) = sorted(aspects, key=itemgetter(0))
        is_signed = low < 0 < high and paper == other and liked != disliked
        return FacetContrast(paper, liked, disliked) if is_signed else None
    paper, facet = _paper_and_facet(query_id)
    return None if facet is None else FacetContrast(paper, facet)


def _weighted_aspects(parts: Sequence[str]) -> Iterator[tuple[float, str, Facet]]:
    """Weight, paper and facet of the parts of a query's id that consist of these."""
    for part in parts:
        weight, _, rest = part.partition("*")
        paper, facet = _paper_and_facet(rest)
        try:
            number = float(weight)
        except ValueError:
            continue
        if facet is not None:
            yield number, paper, facet


def _paper_and_facet(text: str) -> tuple[str, Facet | None]:
    paper_id, facet = split_query_id(text)
    return _unescaped(paper_id), facet


def _unescaped(paper_id: str) -> str:
    return paper_id.replace("%26", "&").replace("%25", "%")


def _rankings(
    rankings: Rankings, contrasts: Mapping[str, Mapping[str, FacetContrast]]
) -> tuple[dict[str, Sequence[Hit]], list[str], tuple[str, ...]]:
    """The ranking of each query, the scopes without any, and warnings; ``contrasts`` by scope and query."""
    sources = _sources(rankings)
    ranked_by: dict[str, Sequence[Hit]] = {}
    not_run: list[str] = []
    warnings: list[str] = []
    for scope, of_scope in contrasts.items():
        signed = {query: sources[contrast] for query, contrast in of_scope.items() if contrast in sources}
        liked = {query: contrast._replace(disliked=None) for query, contrast in of_scope.items()}
        plain = {
            q: sources[contrast] for q, contrast in liked.items() if q not in signed and contrast in sources
        }
        ranked_by |= {query: rankings[source] for query, source in (signed | plain).items()}
        if not signed and not plain:
            not_run.append(scope)
            warnings.append(f"no query for {scope} in the run: no figures for {scope}")
        elif signed and plain:
            warnings.append(
                f"{len(plain)} of {len(of_scope)} queries for {scope} are ranked by the liked facet alone "
                f"({next(iter(plain.values()))}, ...)"
            )
    if not ranked_by:
        contrast = next(iter(next(iter(contrasts.values())).values()))
        raise FileFormatError(
            f"expected rankings for the graded papers ({contrast.paper_id}, ...), of queries such as "
            f"1*ID_{contrast.liked}&-1*ID_{contrast.disliked} or ID_{contrast.liked}, found none in the run "
            f"({next(iter(rankings), 'no query at all')}, ...); give grades and run of the same papers"
        )
    return ranked_by, not_run, tuple(warnings)


def _sources(rankings: Rankings) -> dict[FacetContrast, str]:
    """The query of the run for each contrast; raises FileFormatError where there are two."""
    sources: dict[FacetContrast, str] = {}
    for query_id in rankings:
        contrast = contrast_of(query_id)
        if contrast is None:
            continue
        if contrast in sources:
            disliked = f" and not {contrast.disliked}" if contrast.disliked else ""
            raise FileFormatError(
                f"expected one ranking by {contrast.liked}{disliked} for paper {contrast.paper_id}, found "
                f"{sources[contrast]} and {query_id}; put them in runs of their own"
            )
        sources[contrast] = query_id
    return sources


def _is_other(query_id: str, grades: FacetGrades, pools: Collection[str]) -> bool:
    """Whether a query of the run asks for something else, or is of a paper without grades."""
    contrast = contrast_of(query_id)
    return (contrast is None or contrast.paper_id not in grades) and query_id not in pools


def _gain_ndcg(pool: Mapping[str, ContrastGain], scores: Mapping[str, float]) -> float:
    return ndcg([pool[name].gain for name in trec_order(scores)], [row.gain for row in pool.values()])


def mean_of(by_query: Mapping[str, float], queries: Sequence[str]) -> float | None:
    """The mean over those of the queries that have a value; None where none has."""
    values = [by_query[query] for query in queries if query in by_query]
    return fmean(values) if values else None
