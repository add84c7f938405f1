"""Evaluations: values by query, figures by scope, what a run and the qrels lack; collections without facets.

``pools`` serves RELISH, TRECCOVID-RF, SciDocs and their like, judged pools of whole-abstract queries. NDCG%20
is CSFCube's, which ASPIRE (Mysore et al., 2022; ``src/evaluation/ranking_eval.py``) uses on all collections.
For MAP the highest grade counts as relevant. SciDocs' own scorer (Cohan et al., 2020) gives trec_eval's map
and ndcg.

``citations`` is the protocol of Nogueira, Jiang, Cho and Lin (2020) and Citeomatic (Bhagavatula et al.,
2018): cited papers are relevant, and the first 1,000 papers of a ranking count. A query's id is the id of its
paper, which is no candidate of its own.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from statistics import harmonic_mean
from typing import TYPE_CHECKING

from qbe.errors import FileFormatError, UsageError
from qbe.evaluate.measures import (
    MEASURES,
    NDCG_PERCENT,
    figure,
    judged_ranking,
    parse_measures,
    per_query_values,
    trec_order,
)
from qbe.query import split_query_id
from qbe.runs import MAX_RELEVANCE, Qrels, Rankings
from qbe.types import Facet
from qbe.util.text import some

if TYPE_CHECKING:
    from ir_measures import Measure

ALL = "all"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of one system: values in the unit of each measure by query, figures by scope."""

    queries: Mapping[str, tuple[str, ...]]  # by scope: a facet, a pair of facets, ``all`` or ``aggregated``
    per_query: Mapping[str, Mapping[str, float]]  # by measure
    figures: Mapping[str, Mapping[str, float | None]]  # by measure and scope; None without a ranking
    warnings: tuple[str, ...] = ()  # one line each
    fold_figures: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)  # of CSFCube
    with_relevant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # queries of exploration
    pairs: Mapping[str, int] = field(default_factory=dict)  # crossed ones, by scope
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # of queries, by measure


def evaluate(qrels: Qrels, rankings: Rankings, measures: Iterable[str]) -> Evaluation:
    """Evaluate a run by query, by facet (the end of the query id, if all have one) and over all queries.

    A judged query that is missing in the run scores as an empty ranking, with a warning; a facet without any
    query in the run has no figure, and then the mean over all queries has none.
    """
    for query_id, grades in qrels.items():
        for paper_id, grade in grades.items():
            if abs(grade) > MAX_RELEVANCE:
                span = f"grades from -{MAX_RELEVANCE} to {MAX_RELEVANCE}"
                raise UsageError(f"expected {span}, found {grade} for {query_id} and {paper_id}; mend it")
    parsed = parse_measures(measures)
    by_facet = {facet.value: tuple(q for q in qrels if split_query_id(q)[1] is facet) for facet in Facet}
    if sum(map(len, by_facet.values())) != len(qrels):
        by_facet = {}
    scopes = {facet: ids for facet, ids in by_facet.items() if ids} | {ALL: tuple(qrels)}
    left_out, warnings = coverage(scopes, qrels, rankings)
    with_figures = {query_id for scope, ids in scopes.items() if scope not in left_out for query_id in ids}
    judged = {query_id: grades for query_id, grades in qrels.items() if query_id in with_figures}
    values = per_query_values(parsed, judged, scores_of(rankings))
    return Evaluation(scopes, values, scope_figures(parsed, values, scopes, left_out), warnings)


def scope_figures(
    measures: "Mapping[str, Measure]",
    values: Mapping[str, Mapping[str, float]],
    scopes: Mapping[str, Collection[str]],
    left_out: Collection[str] = (),
) -> dict[str, dict[str, float | None]]:
    """Aggregate values by measure and scope; None for scopes that are left out or have no query with one."""
    figures: dict[str, dict[str, float | None]] = {name: dict.fromkeys(scopes) for name in values}
    for name, scope in product(values, scopes.keys() - left_out):
        if known := [values[name][query] for query in scopes[scope] if query in values[name]]:
            figures[name][scope] = figure(measures, name, known)
    return figures


def coverage(
    scopes: Mapping[str, tuple[str, ...]], qrels: Qrels, rankings: Rankings
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the scopes without a figure, and warnings on queries that only the run or the qrels have."""
    ranked = rankings.keys()
    queries = dict.fromkeys(query_id for ids in scopes.values() for query_id in ids)
    if ranked.isdisjoint(queries):
        raise FileFormatError(
            f"expected a run for the judged queries ({_some(queries)}), found none of them in the run "
            f"({_some(ranked)}); give qrels and run of the same topics"
        )
    facets = {facet.value for facet in Facet} & scopes.keys()
    not_run = [scope for scope in scopes if scope in facets and ranked.isdisjoint(scopes[scope])]
    left_out = frozenset(scope for scope in scopes if scope in not_run or (not_run and scope not in facets))
    warnings = [f"no {name} query in the run: no figures for {name} nor for all queries" for name in not_run]
    of_other_facets = {query_id for facet in not_run for query_id in scopes[facet]}
    warnings += [
        f"no documents for query {query_id}: it scores as an empty ranking"
        for query_id in queries
        if query_id not in ranked and query_id not in of_other_facets
    ]
    if unjudged := [query_id for query_id in ranked if query_id not in qrels]:
        warnings.append(f"queries without judgements left out: {len(unjudged)} ({_some(unjudged)})")
    if not any(hit.paper_id in qrels[query_id] for query_id in queries for hit in rankings.get(query_id, ())):
        warnings.append("no hit of the run is in the qrels, all count as irrelevant: compare document ids")
    return left_out, tuple(warnings)


def _of_papers(qrels: Qrels, rankings: Rankings) -> tuple[Qrels, dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return judgements without those of query papers for themselves, their scope, and warnings."""
    judged = {q: {name: grades[name] for name in grades if name != q} for q, grades in qrels.items()}
    scopes = {ALL: tuple(judged)}
    return judged, scopes, coverage(scopes, judged, rankings)[1]


def scores_of(rankings: Rankings, pools: Qrels | None = None) -> dict[str, dict[str, float]]:
    """Return scores by query id and paper id, with ``pools`` for the papers of each query's pool only."""
    return {
        query: {hit.paper_id: hit.score for hit in hits if pools is None or hit.paper_id in pools[query]}
        for query, hits in rankings.items()
        if pools is None or query in pools
    }


def pool_warnings(pools: Qrels, scores: Mapping[str, Mapping[str, float]], small: int = 5) -> list[str]:
    """Warn of pool papers that a run lacks, and of pools below ``small``, of which NDCG%20 counts no rank."""
    fewer = {query_id: len(pools[query_id]) - len(ranked) for query_id, ranked in scores.items()}
    warnings = []
    if missing := {query_id: count for query_id, count in fewer.items() if count > 0}:
        warnings.append(
            f"{sum(missing.values())} pool documents missing in {len(missing)} queries "
            f"({next(iter(missing))}, ...): they count as not retrieved"
        )
    if too_small := [query_id for query_id, pool in pools.items() if len(pool) < small]:
        warnings.append(
            f"{len(too_small)} queries with fewer than 5 pool documents ({_some(too_small)}): "
            "their NDCG%20 is 0"
        )
    return warnings


def _some(query_ids: Collection[str]) -> str:
    return some(list(query_ids), 2) or "no query at all"


POOLS, CITATIONS = "pools", "citations"

POOL_DEFINITIONS: Mapping[str, str] = {
    NDCG_PERCENT: MEASURES[NDCG_PERCENT].definition,
    "MAP": "mean average precision over the pool; the highest grade of the qrels is relevant",
    "NDCG": "normalized discounted cumulated gain of the whole pool: discounts 1/log2(rank + 1)",
}


def pool_protocol(qrels: Qrels, rankings: Rankings, measures: Iterable[str] = ()) -> Evaluation:
    """Evaluate rankings of judged pools by POOL_DEFINITIONS and further measures of ir-measures."""
    pools, scopes, warnings = _of_papers(qrels, rankings)
    scores = scores_of(rankings, pools)
    highest = max((grade for pool in pools.values() for grade in pool.values()), default=1)
    average_precision = "AP" if highest <= 1 else f"AP(rel={highest})"
    parsed = parse_measures([average_precision, "nDCG", *measures])
    computed = per_query_values(parsed, pools, scores)
    # Not by ir-measures, which would make a table of 12 million rows for TRECCOVID-RF.
    percent = MEASURES[NDCG_PERCENT].function
    values: dict[str, Mapping[str, float]] = {
        NDCG_PERCENT: {q: percent(*judged_ranking(q, pool, scores.get(q, {}))) for q, pool in pools.items()},
        "MAP": computed[average_precision],
        "NDCG": computed["nDCG"],
        **{name: computed[name] for name in parse_measures(measures)},
    }
    figures = scope_figures(parsed, values, scopes)
    return Evaluation(scopes, values, figures, (*warnings, *pool_warnings(pools, scores)))


DEPTH = 1000
F1, F1_OF_MEANS = "F1@20", "F1@20 of means"
# Name in publications -> name in ir-measures, which computes it on the first 1,000 papers.
CITATION_NAMES = {"MRR": "RR", "R@1000": "R@1000", "P@20": "P@20", "R@20": "R@20"}
CITATION_DEFINITIONS = {
    F1: "harmonic mean of a query's precision and recall at 20, 0 where both are 0",
    F1_OF_MEANS: "harmonic mean of mean precision and mean recall at 20, which publications give",
    "MRR": "reciprocal rank of the first cited paper among the first 1,000",
}


def citations_protocol(qrels: Qrels, rankings: Rankings, measures: Iterable[str] = ()) -> Evaluation:
    """Evaluate a run that recommends papers to cite; cited papers have a grade of 1 or more."""
    judged, scopes, warnings = _of_papers(qrels, rankings)
    scores = {}
    for query, by_paper in scores_of(rankings).items():
        # Cut here so that all measures break ties as trec_eval does; ir-measures' own RR@1000 does not.
        others = (paper_id for paper_id in trec_order(by_paper) if paper_id != query)
        scores[query] = {paper_id: by_paper[paper_id] for paper_id in islice(others, DEPTH)}
    further = parse_measures(measures)
    parsed = further | parse_measures(CITATION_NAMES.values())
    computed = per_query_values(parsed, judged, scores)
    values = {F1: {q: harmonic_mean([p, computed["R@20"][q]]) for q, p in computed["P@20"].items()}}
    values |= {label: computed[name] for label, name in CITATION_NAMES.items()}
    values |= {name: computed[name] for name in further}
    means = scope_figures(parsed, values, scopes)
    both = [means[name][ALL] or 0.0 for name in ("P@20", "R@20")]
    of_means: dict[str, float | None] = {ALL: harmonic_mean(both)}
    figures = {F1: means.pop(F1), F1_OF_MEANS: of_means, **means}
    return Evaluation(scopes, values, figures, warnings)
