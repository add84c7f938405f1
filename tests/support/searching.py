"""Pipelines for tests, and rerankers worked by hand put into them."""

import dataclasses

from qbe.search.config import CROSS_ENCODER, SearchConfig

from qbe.index.index import Index
from qbe.query import Query
from qbe.rerank.reranker import Reranker
from qbe.search.pipeline import Pipeline
from qbe.search.reranking import RerankStage


def first_stage(index: Index, name: str = "fused", **parameters: object) -> Pipeline:
    """A pipeline of a first stage alone."""
    return Pipeline.open(index, SearchConfig(first_stage=name, rerank="none", **parameters))


def reranked(
    index: Index, reranker: Reranker, config: SearchConfig | None = None, **settings: float
) -> Pipeline:
    """A pipeline with a reranker that has no name, behind the first stage of ``config`` (fused, not
    separated, so that scores can be worked by hand); ``settings`` are the depth and the weight of reranking.
    """
    config = config or SearchConfig(separate=0.0)
    named = {f"rerank_{name}": value for name, value in settings.items()}
    config = dataclasses.replace(config, rerank=CROSS_ENCODER, **named)
    assert config.rerank_settings is not None
    return Pipeline(index, config, RerankStage(reranker, config.rerank_settings))


def paper_of(query: Query) -> str:
    """The id of the paper of a query with one aspect."""
    return query.aspects[0].paper.paper_id
