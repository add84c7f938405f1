"""What every pipeline promises, whatever it is made of: first stages, and rerankers behind them."""

import math

import pytest
from support.messages import messages_of
from support.rerankers import Overlap
from support.searching import paper_of

from qbe import Aspect, FacetNotFoundError, Index, PaperNotFoundError, Pipeline, Query, UsageError
from qbe.search.stages import BM25, CrossEncoder, Dense, Fused, Matching
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.slow


STAGES = {
    "bm25": (BM25(),),
    "dense": (Dense(),),
    "fused shallow": (Fused(depth=3, weights={"bm25": 1.0, "facet": 0.5, "sentences": 0.5}),),
    "dense + overlap alone, shallow": (Dense(), Overlap(), {"depth": 5, "weight": 1.0}),
    "fused + cross-encoder": (Fused(), "tiny_cross_encoder", {"depth": 7, "weight": 0.25}),
    "fused + joint grades": (Fused(), "tiny_joint_grades", {"depth": 5, "weight": 0.25}),
    "fused + matching": (Fused(), Matching("attention", depth=9)),
}  # first stage; then, if any, the reranker (the fixture of its folder, or what it is), and its parameters


@pytest.fixture(scope="module", params=STAGES)
def stage(request):
    return STAGES[request.param]


@pytest.fixture(scope="module")
def open_searcher(stage, request):

    def opened(index: Index) -> Pipeline:
        first, *reranking = stage
        if not reranking or isinstance(reranking[0], Matching):
            return Pipeline(index, first, *reranking)
        model, parameters = reranking
        model = str(request.getfixturevalue(model)) if isinstance(model, str) else model
        return Pipeline(index, first, CrossEncoder(model, **parameters))

    return opened


@pytest.fixture(scope="module")
def searcher(index, open_searcher) -> Pipeline:
    return open_searcher(index)


@pytest.fixture(scope="module")
def queries(index) -> list[Query]:
    one = index.paper("s024")
    sentences = Sentence("Developers search for code.", Facet.BACKGROUND), Sentence("We train on graphs.")
    outside = Paper("outside", "Ranking code by what it does", sentences, labelled=True)
    return [*(Query(one, facet) for facet in (*Facet, None)), Query(one, positions=(3, 0)), Query(outside)]


def test_hits_are_few_finite_ordered_and_distinct_and_fewer_the_first_of_more(searcher, stage, queries):
    more = stage[0].depth if stage[0].name == "fused" and stage[0].depth < 30 else 30
    for query in queries:
        assert searcher.search(query, 2) == searcher.search(query, more)[:2]
        for hits in (7, 10**12):
            found = searcher.search(query, hits)
            assert 0 < len(found) <= min(hits, 128)
            assert all(math.isfinite(hit.score) for hit in found)
            assert sorted(found, key=lambda hit: (-hit.score, hit.paper_id)) == found
            assert len({hit.paper_id for hit in found}) == len(found)
            assert paper_of(query) not in {hit.paper_id for hit in found}


def test_a_pool_is_ranked_whole(searcher, index, queries):
    pool = [f"s{number:03}" for number in range(20, 60)]
    for query in queries:
        found = searcher.search(query, 1000, [*pool, *pool])
        assert {hit.paper_id for hit in found} == set(pool) - {paper_of(query)}
        assert len(found) == len(set(pool) - {paper_of(query)})
        assert sorted(found, key=lambda hit: (-hit.score, hit.paper_id)) == found
        assert searcher.search(query, 1000, pool[::-1]) == found
        assert searcher.search(query, 3, pool) == found[:3]
        assert searcher.search(query, 3, [paper_of(query), "s001"]) == searcher.search(query, 3, ["s001"])
        assert searcher.search(query, 5, []) == searcher.search(query, 5, [paper_of(query)]) == []


def test_many_queries_find_what_each_finds_alone(searcher, open_searcher, tiny_index, index, queries):
    pool = [f"s{number:03}" for number in range(20, 60)]
    several = Query.of(Aspect(index.paper("s024"), Facet.RESULT), Aspect(index.paper("s030"), weight=-1))
    more = [*queries, queries[0], Query(index.paper("s025"), Facet.RESULT), several]
    pools = [None, pool, [], pool[:3], None, pool[::-1], None, ["s025"], pool]
    alone = [searcher.search(query, 30, pool, explain=True) for query, pool in zip(more, pools, strict=True)]
    assert [len(hits) for hits in alone].count(0) == 2
    for threads in (1, 3):
        with Index(tiny_index, threads=threads) as threaded:
            assert open_searcher(threaded).batch_search(more, 30, pools, explain=True) == alone
    plain = [[hit._replace(matches=()) for hit in searcher.search(query, 9)] for query in queries]
    assert searcher.batch_search(queries[::-1], 9, matches=False) == plain[::-1]
    assert searcher.batch_search([], 5) == []


def test_matches_name_the_closest_sentences(searcher, index, queries):
    for query in queries:
        found = searcher.search(query, 5)
        for hit in found:
            positions = query.aspects[0].selected_positions()
            assert sorted(match.query_position for match in hit.matches) == sorted(positions)
            assert [m.score for m in hit.matches] == sorted((m.score for m in hit.matches), reverse=True)
            count = len(index.paper(hit.paper_id).sentences)
            assert all(0 <= match.position < count for match in hit.matches)
        assert searcher.search(query, 5, matches=False) == [hit._replace(matches=()) for hit in found]


def test_components_are_told_where_explained(searcher, stage, queries):
    first, second = stage[0], searcher.stages.reranker
    components = {"bm25": {"bm25"}, "dense": {"dense"}, "fused": {"bm25", "sentences", "whole"}}[first.name]
    for query in queries:
        facet, expected = query.aspects[0].facet, set(components)
        if first.name == "fused" and facet is not None:
            expected.add("facet")
        depth = second.depth if searcher.session.reranks(query) else 0
        if depth:
            expected.add("first_stage")
        if getattr(first, "background_penalty", 0) and facet in (Facet.METHOD, Facet.RESULT):
            expected.add("background")
        found = searcher.search(query, 40, explain=True)
        for rank, hit in enumerate(found):
            scores = hit.component_scores
            assert set(scores) == expected | ({"reranker"} if rank < depth else set())
            assert all(isinstance(score, float) and math.isfinite(score) for score in scores.values())
            if "first_stage" in scores and first.name != "fused":
                assert scores["first_stage"] == scores[first.name]
        assert searcher.search(query, 40) == [hit._replace(component_scores=None, plan=()) for hit in found]


def test_what_is_refused(searcher, index, queries, told):
    paper, query = index.paper("s001"), queries[0]
    asked = [
        lambda: searcher.batch_search([query, query], 5, [None]),
        lambda: searcher.batch_search([query, query], 5, [None, ["nowhere"]]),
        *(lambda: searcher.search(query, 5, ["s001", "nowhere", "s998"]), lambda: searcher.search(query, 0)),
        *(lambda: searcher.search(query, -1), lambda: searcher.search(Query(paper, Facet.METHOD, (0,)))),
    ]
    asked += [
        lambda each=each: searcher.search(Query(paper, positions=each))
        for each in ((5,), (0, -1, 7), (), (10**20,))
    ]
    asked += [
        lambda each=each: searcher.search(Query(Paper("x", "T", each, labelled=True), Facet.RESULT))
        for each in ((Sentence("A", Facet.METHOD), Sentence("B")), (Sentence("B"),))
    ]
    told("searches", messages_of(asked, (UsageError, PaperNotFoundError, FacetNotFoundError)))
    once, twice = (searcher.search(Query(paper, positions=each), 9) for each in ((2, 1), (2, 1, 2, 2)))
    assert once == twice  # repeated positions count once


def test_a_paper_without_labels_needs_no_facet(searcher):
    unlabelled = Paper("x", "T", (Sentence("Networks."), Sentence("Photographs.")))
    with pytest.raises(FacetNotFoundError, match=r"found no facet labels; have them predicted"):
        Query(unlabelled, Facet.METHOD).aspects[0].selected_positions()
    assert searcher.search(Query(unlabelled), 5)
    assert searcher.search(Query(unlabelled, positions=(0, 1)), 5)


@pytest.mark.parametrize(
    "text",
    ["🧬", "retina 🧬 数学 \U00010348", "the of and", '?! \\ + - && || ( ) { } [ ] ^ " ~ * ? :', "x " * 3000],
)
def test_any_text_can_be_asked(searcher, text):
    query = Query(Paper("outside", text.strip(), (Sentence(text.strip()),)))
    pool = ["s001", "s003", "s002"]
    for found in (searcher.search(query, 5), searcher.search(query, 5, pool)):
        assert all(math.isfinite(hit.score) for hit in found)
    assert sorted(hit.paper_id for hit in found) == sorted(pool)


def test_weights_of_the_facet_alone_need_a_facet(index, queries):
    searcher = Pipeline(index, Fused(weights={"facet": 1.0}))
    assert searcher.search(queries[0])
    with pytest.raises(UsageError, match="expected a facet, since only the component facet has a weight"):
        searcher.search(queries[3])
