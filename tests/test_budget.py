"""Reranking as many candidates as a time allows."""

import logging

import pytest

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import Query
from qbe.rerank.vector_matching import VectorMatching
from qbe.search.budget import BudgetedStage
from qbe.search.config import SearchConfig
from qbe.search.pipeline import Pipeline
from qbe.search.reranking import RerankStage
from qbe.types import Facet

PAIR = 0.0625
POOL = [f"s{number:03d}" for number in range(1, 21)]


class Slow:
    """A matching of vectors that takes PAIR seconds a candidate by a clock of its own."""

    name, needs_vectors = "slow", True

    def __init__(self, index):
        self.now = 0.0
        vectors = lambda paper: index.vectors(paper).sentences  # noqa: E731
        self._matching = VectorMatching("mean-max", vectors, similarity=index.similarity)

    def batch_score(self, requests, progress=None):
        self.now += PAIR * sum(len(request.papers) for request in requests)
        return self._matching.batch_score(requests, progress)


@pytest.fixture
def index(tiny_index):
    with Index(tiny_index) as index:
        yield index


def reranked(hits):
    return [hit for hit in hits if "reranker" in hit.component_scores]


def test_what_a_pair_takes_is_learned_and_says_how_many_are_reranked(index, caplog):
    config = SearchConfig(first_stage="dense", rerank="mean-max", rerank_depth=20, rerank_weight=0.5)
    slow, settings = Slow(index), config.rerank_settings

    def stage(depth):
        return RerankStage(slow, settings._replace(depth=depth))

    budgeted = BudgetedStage(stage, 20, 0.5, clock=lambda: slow.now)
    queries = [Query(index.paper(name), Facet.METHOD) for name in ("s036", "s040")]
    with Pipeline(index, config, budgeted) as pipeline, caplog.at_level(logging.INFO, "qbe"):
        found = pipeline.batch_search(queries, 20, [POOL, POOL], explain=True)
    # Of the first query's half second two trials of two candidates take half.
    assert [len(reranked(hits)) for hits in found] == [4, 8]
    assert "within 0.5 s the last reranker scored 4 to 8 candidates a query" in caplog.text
    for query, depth, hits in zip(queries, (4, 8), found, strict=True):
        with Pipeline(index, config, stage(depth)) as pipeline:
            assert pipeline.search(query, 20, POOL, explain=True) == hits


def test_a_short_time_leaves_the_order_of_the_stage_before(index):
    plain = SearchConfig(first_stage="dense", rerank="none")
    config = SearchConfig(first_stage="dense", rerank_budget=1e-9)
    query = Query(index.paper("s036"), Facet.METHOD)
    with Pipeline.open(index, plain) as pipeline, Pipeline.open(index, config) as budgeted:
        assert budgeted.search(query, 10) == pipeline.search(query, 10)


def test_a_long_time_gives_what_a_search_without_one_gives(graded_index):
    query_of = lambda index: Query(index.paper("s036"), Facet.METHOD)  # noqa: E731
    with Index(graded_index) as index:
        for rerank in ("by-facet", "cascade"):
            with (
                Pipeline.open(index, SearchConfig(rerank=rerank)) as pipeline,
                Pipeline.open(index, SearchConfig(rerank=rerank, rerank_budget=1e6)) as budgeted,
            ):
                assert budgeted.search(query_of(index), 5, POOL) == pipeline.search(query_of(index), 5, POOL)


@pytest.mark.parametrize(("rerank", "budget"), [("projections", 1.0), ("none", 1.0), ("cascade", 0.0)])
def test_a_budget_of_no_time_or_of_no_cross_encoder_is_refused(rerank, budget):
    with pytest.raises(UsageError, match="rerank_budget"):
        SearchConfig(rerank=rerank, rerank_budget=budget)
