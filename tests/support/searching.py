"""Pipelines for tests, and rerankers worked by hand put into them."""

from collections.abc import Iterable
from typing import Any

from qbe import Pipeline, Query
from qbe.index.index import Index
from qbe.search.stages import FIRST_STAGES, CrossEncoder, Fused

PLAIN = Fused(background_penalty=0)
"""The fused first stage whose scores can be worked by hand."""


def first_stage(index: Index, name: str = "fused", **parameters: Any) -> Pipeline:
    """A pipeline of a first stage alone."""
    return Pipeline(index, FIRST_STAGES[name](**parameters))


def reranked(index: Index, reranker: Any, first: Any = PLAIN, **parameters: Any) -> Pipeline:
    """A pipeline with a reranker after a first stage, both without background penalty unless told."""
    return Pipeline(index, first, CrossEncoder(reranker, **{"background_penalty": 0, **parameters}))


def ids(hits: Iterable[Any]) -> list[str]:
    """The ids of the papers of hits."""
    return [hit.paper_id for hit in hits]


def paper_of(query: Query) -> str:
    """The id of the paper of a query with one aspect."""
    return query.aspects[0].paper.paper_id
