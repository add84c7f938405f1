"""Reranking as many candidates as a time allows."""

import logging

import pytest
from qbe.search.budget import FORGET_AFTER, BudgetedStage
from qbe.search.config import SearchConfig

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import Query
from qbe.rerank.vector_matching import VectorMatching
from qbe.search.pipeline import Pipeline
from qbe.search.reranking import RerankStage
from qbe.types import Facet

PAIR = 0.0625
POOL = [f"s{number:03d}" for number in range(1, 21)]


class Slow:
    """A matching of vectors that takes so many seconds a candidate, by a clock of its own."""

    name, needs_vectors = "slow", True

    def __init__(self, index):
        self.now, self.pair = 0.0, PAIR
        vectors = lambda paper: index.vectors(paper).sentences  # noqa: E731
        self._matching = VectorMatching("mean-max", vectors, similarity=index.similarity)

    def batch_score(self, requests, progress=None):
        self.now += self.pair * sum(len(request.papers) for request in requests)
        return self._matching.batch_score(requests, progress)


@pytest.fixture
def index(tiny_index):
    with Index(tiny_index) as index:
        yield index


CONFIG = SearchConfig(first_stage="dense", rerank="mean-max", rerank_depth=20, rerank_weight=0.5)


def stages(slow):
    return lambda depth: RerankStage(slow, CONFIG.rerank_settings._replace(depth=depth))


def reranked(hits):
    return [hit for hit in hits if "reranker" in hit.component_scores]


def test_what_a_pair_takes_is_learned_and_says_how_many_are_reranked(index, caplog):
    slow = Slow(index)
    stage = stages(slow)
    config, budgeted = CONFIG, BudgetedStage(stage, 20, 0.5, clock=lambda: slow.now)
    queries = [Query(index.paper(name), Facet.METHOD) for name in ("s036", "s040")]
    with Pipeline(index, config, budgeted) as pipeline, caplog.at_level(logging.INFO, "qbe"):
        found = pipeline.batch_search(queries, 20, [POOL, POOL], explain=True)
    # Of the first query's half second two trials of two candidates take half.
    assert [len(reranked(hits)) for hits in found] == [4, 8]
    assert "within 0.5 s the last reranker scored 4 to 8 candidates a query" in caplog.text
    for query, depth, hits in zip(queries, (4, 8), found, strict=True):
        with Pipeline(index, config, stage(depth)) as pipeline:
            assert pipeline.search(query, 20, POOL, explain=True) == hits


@pytest.mark.parametrize("few", [0, 1])
def test_nothing_is_learned_from_a_query_without_two_hits(index, few):
    slow = Slow(index)
    budgeted = BudgetedStage(stages(slow), 20, 0.5, clock=lambda: slow.now)
    query = Query(index.paper("s036"), Facet.METHOD)
    with Pipeline(index, CONFIG, budgeted) as pipeline:
        assert len(pipeline.search(query, 20, POOL[:few])) == few
        assert slow.now == 0
        # As for a first query: half the time is that of two trials.
        assert len(reranked(pipeline.search(query, 20, POOL, explain=True))) == 4


def test_after_a_while_without_reranking_it_is_measured_anew(index, caplog):
    slow = Slow(index)
    slow.pair = 0.5  # as on a machine that is busy: the trials alone take longer than there is
    budgeted = BudgetedStage(stages(slow), 20, 0.5, clock=lambda: slow.now)
    query = Query(index.paper("s036"), Facet.METHOD)
    with Pipeline(index, CONFIG, budgeted) as pipeline, caplog.at_level(logging.INFO, "qbe"):
        assert not reranked(pipeline.search(query, 20, POOL, explain=True))
        slow.pair = PAIR
        found = pipeline.batch_search(
            [query] * (FORGET_AFTER + 1), 20, [POOL] * (FORGET_AFTER + 1), explain=True
        )
    assert [len(reranked(hits)) for hits in found] == [0] * (FORGET_AFTER - 1) + [4, 8]
    assert [record.getMessage().split(" scored ")[1] for record in caplog.records[:2]] == [
        "0 candidates a query",
        "0 to 8 candidates a query",
    ]


def test_of_two_trials_the_faster_one_counts(index):
    class SecondIsSlow(Slow):
        def batch_score(self, requests, progress=None):
            scored = super().batch_score(requests, progress)
            self.pair = PAIR * 3 if self.pair == PAIR / 2 else PAIR
            return scored

    slow = SecondIsSlow(index)
    slow.pair = PAIR / 2
    budgeted = BudgetedStage(stages(slow), 20, 1.0, clock=lambda: slow.now)
    with Pipeline(index, CONFIG, budgeted) as pipeline:
        found = pipeline.search(Query(index.paper("s036"), Facet.METHOD), 20, POOL, explain=True)
    # One sixteenth of a second and six sixteenths are gone; the rest is for pairs of half a sixteenth.
    assert len(reranked(found)) == 18


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
