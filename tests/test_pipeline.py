"""Pipelines: several aspects, explanations, refreshed indexes, and what the command and Python share."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.rerankers import ByHand
from support.searching import PLAIN, first_stage, ids, reranked

from qbe import Aspect, CrossEncoder, Dense, Facet, Fused, Index, Pipeline, Query, Topic
from qbe.errors import UsageError
from qbe.search.first_stages import z_normalize

pytestmark = pytest.mark.slow


def scores(pipeline: Pipeline, query: Query, pool: list[str]) -> np.ndarray:
    by_id = {hit.paper_id: hit.score for hit in pipeline.search(query, 1000, pool, matches=False)}
    return np.array([by_id[paper_id] for paper_id in pool])


def test_topics_and_pools_that_do_not_fit(index):
    topic = Topic("q1", "s036")
    with first_stage(index, "dense") as pipeline:
        with pytest.raises(UsageError, match="expected each query_id once, found q1 twice"):
            pipeline.run([topic, Topic("q1", "s001")])
        with pytest.raises(UsageError, match="expected a pool for each query, found none for q1"):
            pipeline.run([topic], pools={"q": ["s051"]})
        query = Query(index.paper("s036"))
        with pytest.raises(TypeError, match="expected a pool as a list of paper ids"):
            pipeline.search(query, pool=(each for each in ["s051"]))


@pytest.mark.parametrize("stage", ["bm25", "dense", "fused"])
def test_aspects_are_combined_by_hand(index, stage):
    pipeline = first_stage(index, stage)
    s024, s036 = index.paper("s024"), index.paper("s036")
    others = [paper.paper_id for paper in index if paper.paper_id not in ("s024", "s036")]
    query = Query.of(
        Aspect(s024, Facet.BACKGROUND), Aspect(s024, Facet.METHOD, weight=-0.5), Aspect(s036, positions=(1,))
    )
    parts = [Query(s024, Facet.BACKGROUND), Query(s024, Facet.METHOD), Query(s036, positions=(1,))]
    liked = {hit.paper_id for part in parts[::2] for hit in pipeline.search(part, 1000)} & set(others)
    pool = sorted(others, key=lambda paper_id: paper_id not in liked)  # normalized over those that are found
    z = [z_normalize(scores(pipeline, part, pool), len(liked))[:60] for part in parts]
    expected = (z[0] - 0.5 * z[1] + z[2]) / 2.5
    pool = pool[:60]
    hits = pipeline.search(query, 1000, [*pool, "s024", "s036"], explain=True)
    assert {hit.paper_id for hit in hits} == set(pool)
    by_id = {hit.paper_id: hit.score for hit in hits}
    assert [by_id[paper_id] for paper_id in pool] == pytest.approx(expected.tolist(), abs=1e-6)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))
    names = ["background of s024", "method of s024", "sentences-1 of s036"]
    assert list(hits[0].component_scores) == names
    assert {match.aspect for match in hits[0].matches} == {0, 1, 2}


def test_aspects_are_reranked_together(index):
    paper = index.paper("s024")
    query = Query.of(Aspect(paper, Facet.BACKGROUND), Aspect(paper, Facet.METHOD, weight=-0.5))
    others = [p.paper_id for p in index if p.paper_id != "s024"]
    reranker = ByHand({paper_id: float(rank) for rank, paper_id in enumerate(others)})
    pipeline = reranked(index, reranker, depth=10, weight=1)
    first = ids(Pipeline(index, PLAIN).search(query, 127))
    hits = pipeline.search(query, 127, explain=True)
    top = first[:10]
    assert reranker.requested == [top, top]  # once an aspect
    # Both aspects have the same scores by hand: (1 - 0.5) / 1.5 of them is left, in their order.
    assert ids(hits[:10]) == sorted(top, key=lambda paper_id: -others.index(paper_id))
    assert ids(hits[10:]) == first[10:]
    assert all(hit.driven_by.aspect == 0 for hit in hits[:10])


def test_topics_with_aspects_make_a_run(search, index, tmp_path):
    topics = tmp_path / "topics.tsv"
    topics.write_text(
        "query_id\tpaper_id\tfacet\taspects\n"
        "q1\ts024\t\tbackground -0.5*method\nq2\ts024\tmethod\nq3\ts024\t\tabstract sentences:0@s036\n"
    )
    output = search("--topics", topics, "--rerank", "none", "--hits", 5)
    paper = index.paper("s024")
    queries = [
        Query.of(Aspect(paper, Facet.BACKGROUND), Aspect(paper, Facet.METHOD, weight=-0.5)),
        Query(paper, Facet.METHOD),
        Query.of(Aspect(paper), Aspect(index.paper("s036"), positions=(0,))),
    ]
    expected = [
        (f"q{number}", hit.paper_id)
        for number, hits in enumerate(first_stage(index).batch_search(queries, 5), 1)
        for hit in hits
    ]
    assert [(line.split()[0], line.split()[2]) for line in output.splitlines()] == expected


def test_equal_neighbours_of_a_run_are_ranked_once(index):
    one, other = (Query(index.paper(each)) for each in ("s036", "s024"))
    pipeline = first_stage(index, "dense")
    found = pipeline.batch_search([one, one, other, one])
    assert found == [pipeline.search(each, 10) for each in (one, one, other, one)]
    assert found[0] is found[1] and found[0] is not found[3]


def test_several_threads_may_search(index):
    pipeline = first_stage(index)
    queries = [Query(index.paper(f"s{number:03}"), Facet.METHOD) for number in range(20, 28)]
    expected = [[pipeline.search(query, 9)] * 3 for query in queries]
    with ThreadPoolExecutor(len(queries)) as pool:
        found = pool.map(lambda query: [pipeline.search(query, 9) for _ in range(3)], queries)
        assert list(found) == expected


def test_a_pipeline_follows_its_index(tiny_index, tmp_path):
    folder = tmp_path / "index"
    shutil.copytree(tiny_index, folder)
    with Index(folder) as index, first_stage(index) as pipeline:
        query = Query(index.paper("s024"), Facet.METHOD)
        best = pipeline.search(query, 3)
        with Index(folder) as writer:
            writer.delete([best[0].paper_id])
            found = first_stage(writer).search(query, 2)
            assert ids(found) == ids(best[1:])
        assert pipeline.search(query, 3) == best
        assert index.refresh()
        assert not index.refresh()
        assert ids(pipeline.search(query, 2)) == ids(best[1:])


def test_parameters_that_do_not_fit_the_index_are_refused(index):
    with pytest.raises(UsageError, match="`nprobe` goes with an index of lists"):
        Pipeline(index, Dense(nprobe=4))
    with pytest.raises(UsageError, match="expected a first stage with a `reranker`"):
        Pipeline(index, Fused() >> CrossEncoder(), CrossEncoder())
