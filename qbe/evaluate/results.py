"""What an evaluation yields: per-query values, and their figures by facet and over all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbe.types import Facet

ALL = "all"
AGGREGATED = "aggregated"

Qrels = Mapping[str, Mapping[str, int]]
"""Grades by query id and document id: the mapping form that ir-measures takes."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One system's values, all in the unit of the measure (most lie in [0, 1]).

    A scope is a facet's value, or the whole (``all``; ``aggregated`` under a protocol).

    Attributes:
        queries: the query ids of each scope.
        per_query: measure name -> query id -> value, for every query of the scopes with figures.
        figures: measure name -> scope -> figure; None where the run does not cover the scope.
        warnings: what a reader should know, one line each.
    """

    queries: Mapping[str, tuple[str, ...]]
    per_query: Mapping[str, Mapping[str, float]]
    figures: Mapping[str, Mapping[str, float | None]]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtocolResult(Evaluation):
    """An evaluation under the CSFCube protocol.

    Attributes:
        fold_figures: measure name -> scope -> one mean a fold; the figure is the mean of these.
    """

    fold_figures: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)


def split_query_id(query_id: str) -> tuple[str, Facet | None]:
    """The paper id and facet of a query id ``{paper_id}_{facet}``; the id itself and None without a facet."""
    paper_id, _, suffix = query_id.rpartition("_")
    try:
        return paper_id, Facet(suffix)
    except ValueError:
        return query_id, None
