"""The results of an evaluation: values by query, and figures by facet and over all queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from qbe.types import Facet

ALL = "all"
AGGREGATED = "aggregated"

Qrels = Mapping[str, Mapping[str, int]]
"""Grades by query id and paper id: the mapping that ir-measures takes as qrels."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of one system; values have the unit of their measure (most lie in [0, 1]).

    A scope is a facet (``background``, ``method``, ``result``), a year (of citing papers), or all queries
    (``all``; ``aggregated`` under the CSFCube protocol).

    Attributes:
        queries: the query ids of each scope.
        per_query: measure name -> query id -> value, for every query of a scope that has a figure. A measure
            that has no value by query is missing.
        figures: measure name -> scope -> figure; None where the run has no ranking for the scope.
        warnings: one line each, on queries and papers that are missing in the run or the qrels.
    """

    queries: Mapping[str, tuple[str, ...]]
    per_query: Mapping[str, Mapping[str, float]]
    figures: Mapping[str, Mapping[str, float | None]]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtocolResult(Evaluation):
    """An evaluation under the CSFCube protocol.

    Attributes:
        fold_figures: measure name -> scope -> the mean of each fold; the figure is the mean of these.
    """

    fold_figures: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)


class OverlapBin(NamedTuple):
    """Papers that are cited by the query papers and share some of their words.

    Attributes:
        overlap: the share of the query's words that occur in the cited paper, such as ``0.10-0.15``.
        cited: number of these papers, counted for each query.
        found: how many of them are among the first 20 for their query.
    """

    overlap: str
    cited: int
    found: int


@dataclass(frozen=True, slots=True)
class CitationResult(Evaluation):
    """An evaluation of recommended citations; a scope is a year of the query papers, or all queries.

    Attributes:
        overlap: the cited papers by overlap, where that was asked for.
    """

    overlap: tuple[OverlapBin, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplorationResult(Evaluation):
    """An evaluation of rankings by a liked and a disliked facet; a scope is such a pair of facets.

    Attributes:
        with_relevant: the queries of each scope that have a relevant paper. Measures of relevant papers have
            values and figures of these queries only.
    """

    with_relevant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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
