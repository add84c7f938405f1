"""A run against judgements, under any measures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from qbe.errors import FileFormatError
from qbe.evaluate.measures import aggregate, parse_measures, per_query_values
from qbe.evaluate.results import ALL, Evaluation, Qrels, split_query_id
from qbe.types import Facet, Run


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str]) -> Evaluation:
    """Evaluate a run by query, by facet (told by the end of the query id) and over all queries.

    A judged query that the run lacks scores as an empty ranking (0 for most measures) and is named
    in the warnings; it is not dropped from the mean. A facet none of whose queries the run answers
    was not run: it gets no figure, nor does the whole. Queries without judgements are left out.

    Raises UsageError for an unknown measure, FileFormatError when no query is in both.
    """
    parsed = parse_measures(measures)
    scopes = facet_scopes(qrels, ALL)
    left_out, warnings = coverage(scopes, qrels, run)
    counted = {query_id for scope, ids in scopes.items() if scope not in left_out for query_id in ids}
    values = per_query_values(
        parsed,
        {query_id: grades for query_id, grades in qrels.items() if query_id in counted},
        scores_of(run),
    )
    figures = {
        name: {
            scope: None if scope in left_out else aggregate(measure, (values[name][q] for q in ids))
            for scope, ids in scopes.items()
        }
        for name, measure in parsed.items()
    }
    return Evaluation(scopes, values, figures, warnings)


def facet_scopes(query_ids: Collection[str], whole: str) -> dict[str, tuple[str, ...]]:
    """The queries of each facet and of the whole; of the whole alone when some query has no facet."""
    by_facet = {
        facet.value: tuple(q for q in query_ids if split_query_id(q)[1] is facet)
        for facet in Facet
        if any(split_query_id(q)[1] is facet for q in query_ids)
    }
    faceted = sum(map(len, by_facet.values())) == len(query_ids)
    return {**(by_facet if faceted else {}), whole: tuple(query_ids)}


def coverage(
    scopes: Mapping[str, tuple[str, ...]], qrels: Qrels, run: Run
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The scopes that a run leaves out, and warnings on queries that only one side has.

    A whole (any scope that is no facet) is left out with the first of its facets. Raises
    FileFormatError when the run answers none of the queries.
    """
    answered = run.rankings.keys()
    queries = dict.fromkeys(query_id for ids in scopes.values() for query_id in ids)
    if answered.isdisjoint(queries):
        raise FileFormatError(
            f"expected a run for the judged queries ({_some(queries)}), found none of them in the run "
            f"({_some(answered)}); give qrels and run of the same topics"
        )
    facets = {facet.value for facet in Facet} & scopes.keys()
    silent = [scope for scope in scopes if scope in facets and answered.isdisjoint(scopes[scope])]
    left_out = frozenset(scope for scope in scopes if scope in silent or (silent and scope not in facets))
    warnings = [f"no {facet} query in the run: no figures for {facet} nor for the whole" for facet in silent]
    unasked = {query_id for facet in silent for query_id in scopes[facet]}
    warnings += [
        f"no documents for query {query_id}: it scores as an empty ranking"
        for query_id in queries
        if query_id not in answered and query_id not in unasked
    ]
    unjudged = [query_id for query_id in answered if query_id not in qrels]
    if unjudged:
        warnings.append(f"queries without judgements left out: {len(unjudged)} ({_some(unjudged)})")
    return left_out, tuple(warnings)


def pool_scores(pools: Qrels, run: Run) -> dict[str, dict[str, float]]:
    """Scores by query id and document id, of the documents of each query's pool."""
    return {
        query_id: {paper_id: score for paper_id, score in documents.items() if paper_id in pools[query_id]}
        for query_id, documents in scores_of(run).items()
        if query_id in pools
    }


def incomplete(pools: Qrels, scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A warning on pool documents that the run lacks, in queries it answers."""
    missing = {
        query_id: len(pools[query_id]) - len(documents)
        for query_id, documents in scores.items()
        if len(documents) < len(pools[query_id])
    }
    if not missing:
        return []
    return [
        f"{sum(missing.values())} pool documents missing in {len(missing)} queries "
        f"({next(iter(missing))}, ...): they count as not retrieved"
    ]


def scores_of(run: Run) -> dict[str, dict[str, float]]:
    """Scores by query id and document id."""
    return {query_id: {hit.paper_id: hit.score for hit in hits} for query_id, hits in run.rankings.items()}


def _some(query_ids: Collection[str]) -> str:
    first = list(query_ids)[:2]
    return ", ".join(first) + (", ..." if len(query_ids) > len(first) else "") if first else "no query at all"
