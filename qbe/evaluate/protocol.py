"""The CSFCube protocol: judged pools, two folds, per facet and aggregated.

As in the scorer of the release (Mysore et al., 2021; ``eval_scripts`` and ``datasheet.md``): a query's
value is computed on its ranked pool, a fold's is the mean over its queries, a facet's the mean of both
folds; aggregated treats all facets' queries of a fold as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from qbe.errors import FileFormatError
from qbe.evaluate.csfcube import MEASURES, judged_ranking, pool_of
from qbe.evaluate.evaluation import coverage, incomplete, pool_scores
from qbe.evaluate.folds import Folds
from qbe.evaluate.measures import aggregate, parse_measures, per_query_values
from qbe.evaluate.results import AGGREGATED, ProtocolResult, Qrels
from qbe.types import Run


def csfcube_protocol(qrels: Qrels, run: Run, folds: Folds, measures: Iterable[str] = ()) -> ProtocolResult:
    """Evaluate a run as CSFCube's scorer does; more measures stand beside, on the same pools and folds.

    The scorer expects complete rankings of the pools. Here a pool document that the run lacks counts
    as not retrieved, as in trec_eval, and a query that the run lacks scores 0; both are told in the
    warnings, and neither leaves a mean. Documents outside the pool are removed, the query paper too.
    A facet none of whose queries the run answers was not run: it gets no figure, nor does aggregated.

    Args:
        qrels: the judgements; query ids end in ``_{facet}``; a facet without any is left out, and
            aggregated with it.
        run: the rankings, of pools or of a whole corpus.
        folds: as ``load_folds`` reads them.
        measures: names of ir-measures to compute beside the protocol's own.

    Raises FileFormatError when folds and qrels do not match or no query is in both qrels and run,
    UsageError for an unknown measure.
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
            scope: tuple(
                aggregate(parsed[name], picked) if name in parsed else fmean(picked)
                for picked in ([by_query[q] for q in fold] for fold in scope_folds)
            )
            for scope, scope_folds in scopes.items()
            if scope not in left_out
        }
        for name, by_query in values.items()
    }
    figures = {
        name: {scope: fmean(of_scope[scope]) if scope in of_scope else None for scope in scopes}
        for name, of_scope in fold_figures.items()
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
    """The folds of the scopes that the qrels cover: a facet, and aggregated when all facets are there.

    Raises FileFormatError when a facet is covered in part, or a judged query is in no fold.
    """
    for query_id in qrels:
        if query_id not in folds.known:
            raise FileFormatError(
                f"expected every judged query in the folds, found {query_id} in none; "
                "give qrels and folds of one release"
            )
    scopes: dict[str, Sequence[Sequence[str]]] = {}
    for scope, of_scope in folds.scopes.items():
        ids = [query_id for fold in of_scope for query_id in fold]
        missing = [query_id for query_id in ids if query_id not in qrels]
        if not missing:
            scopes[scope] = of_scope
        elif len(missing) < len(ids) and scope != AGGREGATED:
            raise FileFormatError(
                f"expected judgements for all {len(ids)} {scope} queries of the folds, found none for "
                f"{missing[0]}; give qrels and folds of one release"
            )
    return scopes
