"""The CSFCube protocol: judged pools, two folds, figures by facet and aggregated.

It is that of the release's scorer (Mysore et al., 2021; ``eval_scripts`` and ``datasheet.md``): the value of
a query is computed on its ranked pool, that of a fold is the mean over its queries, and that of a facet the
mean of both folds. ``aggregated`` joins the queries of all facets in each fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from qbe.errors import FileFormatError
from qbe.evaluate.csfcube import MEASURES, judged_ranking, pool_of
from qbe.evaluate.evaluation import coverage, incomplete, pool_scores
from qbe.evaluate.folds import Folds
from qbe.evaluate.measures import figure, parse_measures, per_query_values
from qbe.evaluate.results import AGGREGATED, ProtocolResult, Qrels
from qbe.types import Run


def csfcube_protocol(qrels: Qrels, run: Run, folds: Folds, measures: Iterable[str] = ()) -> ProtocolResult:
    """Evaluate a run as CSFCube's scorer does; further measures are computed on the same pools and folds.

    The scorer expects complete rankings of the pools. Here a pool paper that is missing in the run counts
    as not retrieved, as in trec_eval, and a query that is missing scores 0; there are warnings of both, and
    both are counted in the means. Papers outside the pool are ignored, and so is the query paper. Where the
    run has no query of a facet, this facet and ``aggregated`` have no figure.

    Args:
        qrels: grades by query id and paper id; query ids end in ``_{facet}``. A facet without judgements
            is left out, and ``aggregated`` with it.
        run: the rankings, of pools or of a whole corpus.
        folds: as `load_folds` reads them.
        measures: names of ir-measures to compute in addition to the protocol's measures.

    Raises FileFormatError when folds and qrels do not match or no query is in both qrels and run,
    UsageError for an unknown measure.

    >>> from qbe.types import Hit
    >>> ids = ("1_method", "2_method")
    >>> folds = Folds({"method": (ids[:1], ids[1:])}, frozenset(ids))
    >>> run = Run("bm25", {query_id: (Hit("a", 9.5), Hit("b", 7.5)) for query_id in ids})
    >>> csfcube_protocol({ids[0]: {"a": 3, "b": 0}, ids[1]: {"a": 0, "b": 2}}, run, folds).figures["MAP"]
    {'method': 0.75}
    """
    scopes = judged_scopes(folds, qrels)
    queries = {scope: tuple(q for fold in scopes[scope] for q in fold) for scope in scopes}
    left_out, warnings = coverage(queries, qrels, run)
    pools = {
        query_id: pool_of(query_id, qrels[query_id])
        for scope, ids in queries.items()
        if scope not in left_out
        for query_id in ids
    }
    scores = pool_scores(pools, run)
    values = _protocol_values(pools, scores)
    parsed = parse_measures(measures) if measures else {}
    values.update(per_query_values(parsed, pools, scores))
    fold_figures = {
        name: {
            scope: tuple(figure(parsed, name, [by_query[q] for q in fold]) for fold in scope_folds)
            for scope, scope_folds in scopes.items()
            if scope not in left_out
        }
        for name, by_query in values.items()
    }
    figures = {
        name: {scope: fmean(by_scope[scope]) if scope in by_scope else None for scope in scopes}
        for name, by_scope in fold_figures.items()
    }
    return ProtocolResult(
        queries, values, figures, (*warnings, *incomplete(pools, scores)), fold_figures=fold_figures
    )


def _protocol_values(pools: Qrels, scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    ranked = {
        query_id: judged_ranking(query_id, pools[query_id], scores.get(query_id, {})) for query_id in pools
    }
    return {
        measure.label: {query_id: measure.function(*grades) for query_id, grades in ranked.items()}
        for measure in MEASURES.values()
    }


def judged_scopes(folds: Folds, qrels: Qrels) -> dict[str, Sequence[Sequence[str]]]:
    """Return the folds of the scopes that the qrels cover: facets, and aggregated when all are covered.

    Raises FileFormatError when only a part of a facet's queries is judged, or a judged query is in no fold.

    >>> scopes = {"method": (("1_method",), ("2_method",)), "result": (("1_result",), ("2_result",))}
    >>> folds = Folds(scopes, frozenset(("1_method", "2_method", "1_result", "2_result")))
    >>> judged_scopes(folds, {"1_method": {"a": 3}, "2_method": {"a": 0}})
    {'method': (('1_method',), ('2_method',))}
    """
    for query_id in qrels:
        if query_id not in folds.known:
            raise FileFormatError(
                f"expected every judged query in the folds, found {query_id} in none; "
                "give qrels and folds of one release"
            )
    scopes: dict[str, Sequence[Sequence[str]]] = {}
    for scope, scope_folds in folds.scopes.items():
        ids = [query_id for fold in scope_folds for query_id in fold]
        missing = [query_id for query_id in ids if query_id not in qrels]
        if not missing:
            scopes[scope] = scope_folds
        elif len(missing) < len(ids) and scope != AGGREGATED:
            raise FileFormatError(
                f"expected judgements for all {len(ids)} {scope} queries of the folds, found none for "
                f"{missing[0]}; give qrels and folds of one release"
            )
    return scopes
