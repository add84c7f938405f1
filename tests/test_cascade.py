"""Projections, then cross-encoders for the best few."""

import pytest
from qbe.search.config import SearchConfig

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import Query, TopicAspect
from qbe.search.fusion import interpolate
from qbe.search.pipeline import Pipeline
from qbe.types import Facet

POOL = [f"s{number:03d}" for number in range(1, 13)]


@pytest.fixture(scope="module")
def index(graded_index):
    with Index(graded_index) as index:
        yield index


def hits_of(index, **parameters):
    with Pipeline.open(index, SearchConfig(**parameters)) as pipeline:
        return pipeline.search(Query(index.paper("s036"), Facet.METHOD), 20, POOL, explain=True)


def test_the_last_stage_mixes_its_scores_with_those_of_the_projections(index):
    alone = hits_of(index, rerank="projections")
    cascade = hits_of(index, rerank="cascade", cascade_depth=4)
    best = {hit.paper_id: hit for hit in cascade[:4]}
    assert {hit.paper_id for hit in alone[:4]} == set(best)
    assert [hit.paper_id for hit in alone[4:]] == [hit.paper_id for hit in cascade[4:]]
    read_again = [best[hit.paper_id].component_scores["reranker"] for hit in alone[:4]]
    expected = interpolate([hit.score for hit in alone[:4]], read_again, 0.5)
    assert [best[hit.paper_id].score for hit in alone[:4]] == pytest.approx(expected)
    projected = {hit.paper_id: hit.component_scores.pop("reranker") for hit in alone}
    first_stage = {hit.paper_id: hit.component_scores for hit in alone}
    for hit in cascade:
        expected_components = {**first_stage[hit.paper_id], "projections": projected[hit.paper_id]}
        assert ("reranker" in hit.component_scores) == (hit.paper_id in best)
        hit.component_scores.pop("reranker", None)
        assert hit.component_scores == expected_components


def test_all_of_them_read_again_have_the_scores_of_the_cross_encoders(index):
    cross = {hit.paper_id: hit.component_scores["reranker"] for hit in hits_of(index)}
    cascade = {hit.paper_id: hit.component_scores["reranker"] for hit in hits_of(index, rerank="cascade")}
    assert cascade == pytest.approx(cross)


def test_pairs_are_counted_for_both_stages(index):
    config = SearchConfig(rerank="cascade", rerank_depth=10, cascade_depth=3)
    query, counted = Query(index.paper("s036"), Facet.METHOD), []
    with Pipeline.open(index, config) as pipeline:
        pipeline.batch_search([query], 5, progress=counted.append)
        assert sum(counted) == pipeline.rerank_pairs([TopicAspect("s036", Facet.METHOD)], 50) == 13


def test_a_depth_of_the_cascade_belongs_to_it():
    with pytest.raises(UsageError, match="`cascade_depth` is not read with `rerank` by-facet"):
        SearchConfig(cascade_depth=5)
