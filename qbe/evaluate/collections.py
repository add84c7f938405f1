"""Collections without facets: judged pools of whole-abstract queries, and citation recommendation.

``pools`` serves RELISH, TRECCOVID-RF, SciDocs and their like. NDCG%20 is CSFCube's, which ASPIRE (Mysore et
al., 2022; ``src/evaluation/ranking_eval.py``) uses on all collections. For MAP the highest grade counts as
relevant. SciDocs' own scorer (Cohan et al., 2020) gives trec_eval's map and ndcg.

``citations`` is the protocol of Nogueira, Jiang, Cho and Lin (2020) and Citeomatic (Bhagavatula et al.,
2018): cited papers are relevant, and the first 1,000 papers of a ranking count. A query's id is the id of its
paper, which is no candidate of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from statistics import harmonic_mean

from qbe.evaluate.evaluation import (
    ALL,
    Evaluation,
    coverage,
    pool_scores,
    pool_warnings,
    scope_figures,
    scores_of,
    without_query_papers,
)
from qbe.evaluate.measures import (
    MEASURES,
    NDCG_PERCENT,
    judged_ranking,
    parse_measures,
    per_query_values,
    trec_order,
)
from qbe.runs import Qrels, Rankings

POOLS, CITATIONS = "pools", "citations"

POOL_DEFINITIONS: Mapping[str, str] = {
    NDCG_PERCENT: MEASURES[NDCG_PERCENT].definition,
    "MAP": "mean average precision over the pool; the highest grade of the qrels is relevant",
    "NDCG": "normalized discounted cumulated gain of the whole pool: discounts 1/log2(rank + 1)",
}


def pool_protocol(qrels: Qrels, rankings: Rankings, measures: Iterable[str] = ()) -> Evaluation:
    """Evaluate rankings of judged pools by POOL_DEFINITIONS and further measures of ir-measures."""
    pools = without_query_papers(qrels)
    scopes = {ALL: tuple(pools)}
    _, warnings = coverage(scopes, pools, rankings)
    scores = pool_scores(pools, rankings)
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
    judged = without_query_papers(qrels)
    scopes = {ALL: tuple(judged)}
    _, warnings = coverage(scopes, judged, rankings)
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
    of_means: dict[str, float | None] = {
        scope: harmonic_mean([means[name][scope] or 0.0 for name in ("P@20", "R@20")]) for scope in scopes
    }
    figures = {F1: means.pop(F1), F1_OF_MEANS: of_means, **means}
    return Evaluation(scopes, values, figures, warnings)
