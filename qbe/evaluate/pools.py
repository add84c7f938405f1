"""The protocol of whole-abstract queries with judged pools: RELISH, TRECCOVID-RF, SciDocs and their like.

There are no facets and no folds: the queries of a split are those of its qrels. A query's pool consists of
its judged papers without the query paper; papers outside are ignored, since the scorers of these collections
take rankings of the pools.

NDCG%20 is CSFCube's (`qbe.evaluate.csfcube.ndcg_percent`), which ASPIRE (Mysore et al., 2022;
``src/evaluation/ranking_eval.py``) uses on all collections. For MAP the highest grade counts as relevant: 2
of RELISH's grades, 1 of TRECCOVID-RF's and SciDocs'. SciDocs' own scorer (Cohan et al., 2020;
``scidocs/user_activity_and_citations.py``) gives trec_eval's map and ndcg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qbe.evaluate.csfcube import MEASURES, NDCG_PERCENT, judged_ranking
from qbe.evaluate.evaluation import (
    coverage,
    incomplete,
    pool_scores,
    scope_figures,
    too_small,
    without_query_papers,
)
from qbe.evaluate.measures import parse_measures, per_query_values
from qbe.evaluate.results import ALL, Evaluation, Qrels
from qbe.runs import Rankings

POOLS = "pools"

DEFINITIONS: Mapping[str, str] = {
    NDCG_PERCENT: MEASURES[NDCG_PERCENT].definition,
    "MAP": "mean average precision over the pool; the highest grade of the qrels is relevant",
    "NDCG": "normalized discounted cumulated gain of the whole pool: discounts 1/log2(rank + 1)",
}
"""The measures, in the order of a report."""


def pool_protocol(qrels: Qrels, rankings: Rankings, measures: Iterable[str] = ()) -> Evaluation:
    """Evaluate rankings of judged pools; further measures are computed on the same pools.

    A pool paper that is missing in the run counts as not retrieved, and a query that is missing scores as an
    empty ranking; there are warnings of both.

    Args:
        qrels: the judgements of one split: grades by query id and paper id.
        rankings: ranked papers by query id, of pools or of a whole corpus.
        measures: names of ir-measures to compute in addition to those of DEFINITIONS.

    Raises FileFormatError when no query is in both qrels and run, UsageError for an unknown measure.

    >>> from qbe.types import Hit
    >>> rankings = {"7": (Hit("a", 0.9), Hit("b", 0.8), Hit("c", 0.7))}
    >>> pool_protocol({"7": {"a": 0, "b": 1, "c": 1}}, rankings).figures["MAP"]["all"]
    0.5833333333333333
    """
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
    return Evaluation(scopes, values, figures, (*warnings, *incomplete(pools, scores), *too_small(pools)))
