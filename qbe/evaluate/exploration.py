"""Exploration: do candidates that resemble a paper in a liked facet but not in another come first?"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import Evaluation, coverage, incomplete, mean_of, pool_scores
from qbe.evaluate.facets import FacetGrades
from qbe.evaluate.measures import parse_measures, per_query_values, trec_order
from qbe.query import SHAPES, split_query_id
from qbe.runs import Rankings
from qbe.types import Facet, Hit

EXPLORATION = "exploration"

CUTOFF = 10
NDCG = f"nDCG@{CUTOFF}"

SCOPES = (
    (Facet.BACKGROUND, Facet.METHOD),
    (Facet.METHOD, Facet.BACKGROUND),
    (Facet.BACKGROUND, Facet.RESULT),
    (Facet.RESULT, Facet.BACKGROUND),
    (Facet.METHOD, Facet.RESULT),
    (Facet.RESULT, Facet.METHOD),
)
"""The liked and the disliked facet."""

_FACETS = "|".join(facet.value for facet in Facet)
_OF_SHAPES = {name: tuple(weights) for name, weights in SHAPES.items() if min(weights.values()) < 0}
_CONTRAST = re.compile(rf"(.+)_({_FACETS})-not-({_FACETS})")

LIKED_FROM, DISLIKED_TO = 2.0, 0.5
"""Relevance thresholds: liked facet at least 2.0, disliked facet at most 0.5."""

_BINARY = (f"P@{CUTOFF}", "RR")
_RELEVANT = f"liked >= {LIKED_FROM:g}, disliked <= {DISLIKED_TO:g}"
EXPLORATION_DEFINITIONS: Mapping[str, str] = {
    NDCG: f"normalized discounted cumulated gain at rank {CUTOFF}: the gain is the grade of the liked facet "
    "minus that of the disliked one, at least 0; discounts 1/log2(rank + 1)",
    _BINARY[0]: f"share of relevant papers ({_RELEVANT}) among the first {CUTOFF}, over the queries with any",
    _BINARY[1]: f"reciprocal rank of the first relevant paper ({_RELEVANT}), over the queries with any",
}


class ContrastGain(NamedTuple):
    """Gain of a candidate for a query that favours one facet and penalizes another."""

    gain: float
    relevant: bool


class FacetContrast(NamedTuple):
    """A query's paper, its liked facet, and its disliked one, if any."""

    paper_id: str
    liked: Facet
    disliked: Facet | None = None


def exploration_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate a run that looks for papers like a paper in one facet and unlike it in another.

    A scope, such as ``background-not-method``, is one of SCOPES; its queries are the query papers with a
    candidate of positive gain. A query's ranking is that of the run's query ``1*p_background&-0.5*p_method``
    (any weights), ``p_background-not-method`` or a shape; where the run has none, that of ``p_background``.
    """
    pools: dict[str, dict[str, ContrastGain]] = {}
    contrasts: dict[str, dict[str, FacetContrast]] = {}
    for liked, disliked in SCOPES:
        scope = f"{liked}-not-{disliked}"
        for paper, pool in judged_pools(grades, liked, disliked).items():
            pools[f"{paper}_{scope}"] = pool
            contrasts.setdefault(scope, {})[f"{paper}_{scope}"] = FacetContrast(paper, liked, disliked)
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
    ranked_by, not_run, warnings = _contrast_rankings(rankings, contrasts)
    ranked = {scope: queries for scope, queries in scopes.items() if scope not in not_run}
    others = {}
    for query, hits in rankings.items():
        contrast = contrast_of(query)
        if (contrast is None or contrast.paper_id not in grades) and query not in pools:
            others[query] = hits
    _, missing = coverage(ranked, relevant, others | ranked_by)
    scores = pool_scores(relevant, ranked_by)
    binary = {query: relevant[query] for scope in ranked for query in with_relevant[scope]}
    gains = {
        query: ndcg(
            [pools[query][name].gain for name in trec_order(scores.get(query, {}))],
            [row.gain for row in pools[query].values()],
        )
        for queries in ranked.values()
        for query in queries
    }
    values = {NDCG: gains, **per_query_values(parse_measures(_BINARY), binary, scores)}
    figures = {
        measure: {scope: mean_of(by_query, queries) for scope, queries in scopes.items()}
        for measure, by_query in values.items()
    }
    warnings += (*missing, *incomplete(relevant, scores))
    return Evaluation(scopes, values, figures, warnings, with_relevant=with_relevant)


def judged_pools(grades: FacetGrades, liked: Facet, disliked: Facet) -> dict[str, dict[str, ContrastGain]]:
    """Return the candidates with grades for both facets, for query papers with a positive gain."""
    pools: dict[str, dict[str, ContrastGain]] = {}
    for paper, rows in grades.items():
        pool = {}
        for candidate, row in rows.items():
            if candidate != paper and {liked, disliked} <= row.keys():
                is_relevant = row[liked] >= LIKED_FROM and row[disliked] <= DISLIKED_TO
                pool[candidate] = ContrastGain(max(0.0, row[liked] - row[disliked]), is_relevant)
        if any(judged.gain > 0 for judged in pool.values()):
            pools[paper] = pool
    return pools


def ndcg(ranked: Sequence[float], pool: Collection[float]) -> float:
    """Compute nDCG at rank 10 with linear gains and discounts 1/log2(rank + 1); 0 where no gain is positive.

    ``ranked`` are the gains of retrieved papers in rank order, ``pool`` those of all judged papers.
    """

    def dcg(gains: Sequence[float]) -> float:
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:CUTOFF], start=1))

    ideal = dcg(sorted(pool, reverse=True))
    return dcg(ranked) / ideal if ideal else 0.0


def contrast_of(query_id: str) -> FacetContrast | None:
    """Parse the id of a query by one facet, or by a liked and a disliked one; None for any other.

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
    aspects = []
    for part in parts:
        weight, _, rest = part.partition("*")
        paper, facet = split_query_id(rest)
        try:
            number = float(weight)
        except ValueError:
            continue
        if facet is not None:
            aspects.append((number, _unescaped(paper), facet))
    if len(parts) == len(aspects) == 2:
        (low, paper, disliked), (high, other, liked) = sorted(aspects, key=itemgetter(0))
        is_signed = low < 0 < high and paper == other and liked != disliked
        return FacetContrast(paper, liked, disliked) if is_signed else None
    paper, facet = split_query_id(query_id)
    return None if facet is None else FacetContrast(_unescaped(paper), facet)


def _unescaped(paper_id: str) -> str:
    return paper_id.replace("%26", "&").replace("%25", "%")


def _contrast_rankings(
    rankings: Rankings, contrasts: Mapping[str, Mapping[str, FacetContrast]]
) -> tuple[dict[str, Sequence[Hit]], list[str], tuple[str, ...]]:
    """Return the ranking of each query, the scopes without any, and warnings."""
    sources: dict[FacetContrast, str] = {}
    for query_id in rankings:
        found = contrast_of(query_id)
        if found is not None and found in sources:
            disliked = f" and not {found.disliked}" if found.disliked else ""
            raise FileFormatError(
                f"expected one ranking by {found.liked}{disliked} for paper {found.paper_id}, found "
                f"{sources[found]} and {query_id}; put them in runs of their own"
            )
        if found is not None:
            sources[found] = query_id
    ranked_by: dict[str, Sequence[Hit]] = {}
    not_run: list[str] = []
    warnings: list[str] = []
    for scope, of_scope in contrasts.items():
        signed = {query: sources[contrast] for query, contrast in of_scope.items() if contrast in sources}
        liked = {query: contrast._replace(disliked=None) for query, contrast in of_scope.items()}
        plain = {
            query: sources[contrast]
            for query, contrast in liked.items()
            if query not in signed and contrast in sources
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
