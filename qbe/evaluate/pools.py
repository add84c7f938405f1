"""Protocols of collections of whole-abstract queries: judged pools, and means over the queries of a split.

There are no facets and no folds: the queries of a split are those of its qrels. A query's pool consists of
its judged papers without the query paper; papers outside are ignored, since the scorers of these collections
take rankings of the pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from qbe.errors import UsageError
from qbe.evaluate.csfcube import MEASURES, NDCG_PERCENT, judged_ranking
from qbe.evaluate.evaluation import coverage, incomplete, pool_scores, scope_figures, without_query_papers
from qbe.evaluate.measures import definition, parse_measures, per_query_values
from qbe.evaluate.results import ALL, Evaluation, Qrels
from qbe.types import Run


class PoolProtocol(NamedTuple):
    """How a collection is scored: its name, and measures: name in publications -> name in ir-measures.

    NDCG%20 is CSFCube's (`qbe.evaluate.csfcube.ndcg_percent`), which ASPIRE uses on all collections.

    >>> POOL_PROTOCOLS["relish"].measures
    {'NDCG%20': 'CSFCube_nDCG', 'MAP': 'AP(rel=2)'}
    """

    title: str
    measures: Mapping[str, str]


POOL_PROTOCOLS: Mapping[str, PoolProtocol] = {
    # ASPIRE (Mysore et al., 2022; src/evaluation/ranking_eval.py): for MAP the grades that count as relevant
    # are 2 of RELISH's 0 to 2, and 1 of TRECCOVID-RF's 0 and 1.
    "relish": PoolProtocol("RELISH", {NDCG_PERCENT: MEASURES[NDCG_PERCENT].name, "MAP": "AP(rel=2)"}),
    "treccovid": PoolProtocol("TRECCOVID-RF", {NDCG_PERCENT: MEASURES[NDCG_PERCENT].name, "MAP": "AP"}),
    # SciDocs' own scorer (Cohan et al., 2020; scidocs/user_activity_and_citations.py): trec_eval's map, ndcg.
    "scidocs": PoolProtocol("SciDocs", {"MAP": "AP", "NDCG": "nDCG"}),
}


def pool_protocol(qrels: Qrels, run: Run, protocol: str, measures: Iterable[str] = ()) -> Evaluation:
    """Evaluate a run as the scorer of a collection does; further measures are computed on the same pools.

    These scorers expect complete rankings of the pools. Here a pool paper that is missing in the run counts
    as not retrieved, and a query that is missing scores as an empty ranking; there are warnings of both.

    Args:
        qrels: the judgements of one split: grades by query id and paper id.
        run: the rankings, of pools or of a whole corpus.
        protocol: a key of POOL_PROTOCOLS.
        measures: names of ir-measures to compute in addition to the protocol's measures.

    Raises FileFormatError when no query is in both qrels and run, UsageError for an unknown measure or
    protocol.

    >>> from qbe.types import Hit
    >>> run = Run("dense", {"7": (Hit("a", 0.9), Hit("b", 0.8), Hit("c", 0.7))})
    >>> pool_protocol({"7": {"a": 0, "b": 1, "c": 1}}, run, "treccovid").figures["MAP"]["all"]
    0.5833333333333333
    """
    if protocol not in POOL_PROTOCOLS:
        raise UsageError(f"expected a `protocol` of {', '.join(POOL_PROTOCOLS)}, found {protocol!r}")
    pools = without_query_papers(qrels)
    scopes = {ALL: tuple(pools)}
    _, warnings = coverage(scopes, pools, run)
    scores = pool_scores(pools, run)
    names = POOL_PROTOCOLS[protocol].measures
    parsed = parse_measures([*(name for label, name in names.items() if label != NDCG_PERCENT), *measures])
    computed = per_query_values(parsed, pools, scores)
    values: dict[str, Mapping[str, float]] = {
        label: _percent(pools, scores) if label == NDCG_PERCENT else computed[name]
        for label, name in names.items()
    }
    values |= {name: computed[name] for name in parse_measures(measures)}
    figures = scope_figures(parsed, values, scopes)
    return Evaluation(scopes, values, figures, (*warnings, *incomplete(pools, scores)))


def _percent(pools: Qrels, scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """NDCG%20 by query; not by ir-measures, which would make a table of 12 million rows for TRECCOVID-RF."""
    function = MEASURES[NDCG_PERCENT].function
    return {q: function(*judged_ranking(q, pool, scores.get(q, {}))) for q, pool in pools.items()}


def pool_definition(protocol: str, label: str) -> str:
    """Return a one-line definition of a protocol's measure.

    >>> pool_definition("scidocs", "NDCG")
    'Normalised Discounted Cumulative Gain, as ir-measures computes nDCG'
    """
    return definition(POOL_PROTOCOLS[protocol].measures[label])
