"""The results of an evaluation: values by query, and figures by facet and over all queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbe.types import Facet

ALL = "all"
AGGREGATED = "aggregated"

Qrels = Mapping[str, Mapping[str, int]]
"""Grades by query id and paper id: the mapping that ir-measures takes as qrels."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of one system; values have the unit of their measure (most lie in [0, 1]).

    A scope is a facet (``background``, ``method``, ``result``), a pair of facets (``method-background``), or
    all queries (``all``; ``aggregated`` under the CSFCube protocol).

    Attributes:
        queries: the query ids of each scope.
        per_query: measure name -> query id -> value, for every query of a scope that has a figure. A measure
            that has no value by query is missing.
        figures: measure name -> scope -> figure; None where the run has no ranking for the scope.
        warnings: one line each, on queries and papers that are missing in the run or the qrels.
        fold_figures: under the CSFCube protocol measure name -> scope -> the mean of each fold, of which the
            figure is the mean.
        with_relevant: under the protocol of exploration the queries of each scope that have a relevant paper.
            Measures of relevant papers have values and figures of these queries only.
        pairs: under the protocol of crossed pairs the number of pairs of each scope.
    """

    queries: Mapping[str, tuple[str, ...]]
    per_query: Mapping[str, Mapping[str, float]]
    figures: Mapping[str, Mapping[str, float | None]]
    warnings: tuple[str, ...] = ()
    fold_figures: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    with_relevant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pairs: Mapping[str, int] = field(default_factory=dict)


def split_query_id(query_id: str) -> tuple[str, Facet | None]:
    """Split a query id ``{paper_id}_{facet}``; an id without a facet is returned with None.

    >>> split_query_id("8781666_method"), split_query_id("8781666")
    (('8781666', <Facet.METHOD: 'method'>), ('8781666', None))
    """
    paper_id, _, suffix = query_id.rpartition("_")
    try:
        return paper_id, Facet(suffix)
    except ValueError:
        return query_id, None
