"""What every pipeline promises, whatever it is made of: first stages, and rerankers behind them."""

import math
from dataclasses import replace

import pytest
from support.processors import INT8_IS_EXACT
from support.rerankers import Overlap
from support.searching import paper_of

from qbe.errors import FacetNotFoundError, PaperNotFoundError, UsageError
from qbe.index.index import Index
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import BM25, CrossEncoder, Dense, Fused, Matching
from qbe.topics import read_pools
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.slow


def shortest(aspect, papers):
    """The shorter an abstract, the better."""
    return [-len(paper.abstract) for paper in papers]


STAGES = {
    "bm25": (BM25(),),
    "bm25 abstract": (BM25("abstract"),),
    "dense": (Dense(),),
    "fused": (Fused(),),
    "fused plain": (Fused(background_penalty=0),),
    "fused shallow": (Fused(depth=3, weights={"bm25": 1.0, "facet": 0.5, "sentences": 0.5}),),
    "bm25 + overlap": (BM25(), Overlap(), {}),
    "dense + overlap alone, shallow": (Dense(), Overlap(), {"depth": 5, "weight": 1.0}),
    "dense + a function": (Dense(), shortest, {"depth": 9, "weight": 0.1}),
    "fused + cross-encoder": (Fused(), "tiny_cross_encoder", {"depth": 20, "weight": 0.25}),
    "fused + facet rerankers": (Fused(), "tiny_facet_rerankers", {"depth": 7, "weight": 0.25}),
    "fused + matching": (Fused(), Matching("attention", depth=9), {}),
}
"""First stage; then, if any, the reranker (the fixture of its folder, or what it is), and its parameters."""


@pytest.fixture(scope="module")
def index(tiny_index):
    with Index(tiny_index) as index:
        yield index


@pytest.fixture(scope="module", params=STAGES)
def stage(request):
    return STAGES[request.param]


@pytest.fixture(scope="module")
def open_searcher(stage, request):
    """Open the stage on an index."""

    def opened(index: Index) -> Pipeline:
        first, *reranking = stage
        if not reranking:
            return Pipeline(index, first)
        reranker, parameters = reranking
        if isinstance(reranker, Matching):
            return Pipeline(index, first, reranker)
        named = isinstance(reranker, str)
        model = str(request.getfixturevalue(reranker)) if named else reranker
        return Pipeline(index, first, CrossEncoder(model, **parameters))

    return opened


@pytest.fixture(scope="module")
def searcher(index, open_searcher) -> Pipeline:
    return open_searcher(index)


@pytest.fixture(scope="module")
def queries(index) -> list[Query]:
    """A query by each facet, by the whole abstract, by positions, and from outside the index."""
    one = index.paper("s024")
    outside = Paper(
        "outside",
        "Ranking code by what it does",
        (
            Sentence("Developers search for code.", Facet.BACKGROUND),
            Sentence("We train a network on graphs."),
        ),
        labelled=True,
    )
    return [*(Query(one, facet) for facet in (*Facet, None)), Query(one, positions=(3, 0)), Query(outside)]


def test_hits_are_few_finite_ordered_and_distinct(searcher, queries):
    for query in queries:
        for hits in (1, 7, 1000, 10**12):
            found = searcher.search(query, hits)
            assert 0 < len(found) <= min(hits, 128)
            assert all(math.isfinite(hit.score) for hit in found)
            assert sorted(found, key=lambda hit: (-hit.score, hit.paper_id)) == found
            assert len({hit.paper_id for hit in found}) == len(found)
            assert paper_of(query) not in {hit.paper_id for hit in found}


def test_fewer_hits_are_the_first_of_more(searcher, stage, queries):
    more = stage[0].depth if stage[0].name == "fused" and stage[0].depth < 30 else 30
    for query in queries:
        assert searcher.search(query, 2) == searcher.search(query, more)[:2]


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


def test_a_pool_may_be_empty(searcher, queries):
    assert searcher.search(queries[0], 5, []) == []
    assert searcher.search(queries[0], 5, [paper_of(queries[0])]) == []


def test_the_sample_pools_are_ranked_whole(searcher, index, sample):
    pools = read_pools(sample / "pools.tsv")
    for query_id, pool in list(pools.items())[::4]:
        paper_id, _, facet = query_id.rpartition("_")
        found = searcher.search(Query(index.paper(paper_id), Facet(facet)), 1000, pool, matches=False)
        assert sorted(hit.paper_id for hit in found) == sorted(pool)


def test_the_same_twice_and_with_other_threads(searcher, open_searcher, tiny_index, queries):
    with Index(tiny_index, threads=3) as threaded:
        again = open_searcher(threaded)
        for query in queries:
            found = searcher.search(query, 50)
            assert searcher.search(query, 50) == found
            assert again.search(query, 50) == found


def test_many_queries_find_what_each_finds_alone(searcher, open_searcher, tiny_index, index, queries):
    """To the last bit, in any company, with and without pools, with any number of threads."""
    pool = [f"s{number:03}" for number in range(20, 60)]
    more = [*queries, queries[0], Query(index.paper("s025"), Facet.RESULT)]
    pools = [None, pool, [], pool[:3], None, pool[::-1], None, ["s025"]]
    alone = [searcher.search(query, 30, pool, explain=True) for query, pool in zip(more, pools, strict=True)]
    assert [len(hits) for hits in alone].count(0) == 2
    for threads in (1, 3):
        with Index(tiny_index, threads=threads) as threaded:
            together = open_searcher(threaded)
            assert together.batch_search(more, 30, pools, explain=True) == alone
            plain = [[hit._replace(matches=()) for hit in searcher.search(query, 9)] for query in more]
            assert together.batch_search(more[::-1], 9, matches=False) == plain[::-1]
    assert searcher.batch_search([], 5) == []


def test_as_many_pools_as_queries_are_wanted(searcher, queries):
    with pytest.raises(UsageError, match="expected a pool for each of 2 queries, found 1 pools"):
        searcher.batch_search(queries[:2], 5, [None])


def test_one_bad_query_among_many_is_refused(searcher, queries):
    with pytest.raises(PaperNotFoundError, match=r"such as nowhere"):
        searcher.batch_search(queries[:2], 5, [None, ["nowhere"]])


def test_a_copy_of_a_paper_under_another_id_finds_the_paper(searcher, stage, index):
    if not INT8_IS_EXACT and any(isinstance(part, Matching) for part in stage):
        pytest.skip("by matchings another paper is nearly level")
    paper = index.paper("s024")
    found = searcher.search(Query(replace(paper, paper_id="copy"), Facet.METHOD), 5)
    assert found[0].paper_id == "s024"


def test_matches_name_the_closest_sentences(searcher, index, queries):
    for query in queries:
        for hit in searcher.search(query, 5):
            positions = query.aspects[0].selected_positions()
            assert sorted(match.query_position for match in hit.matches) == sorted(positions)
            assert [m.score for m in hit.matches] == sorted((m.score for m in hit.matches), reverse=True)
            count = len(index.paper(hit.paper_id).sentences)
            assert all(0 <= match.position < count for match in hit.matches)
        plain = searcher.search(query, 5, matches=False)
        assert plain == [hit._replace(matches=()) for hit in searcher.search(query, 5)]


def test_components_are_told_where_explained(searcher, stage, queries):
    first, second = stage[0], searcher.stages.reranker
    components = {"bm25": {"bm25"}, "dense": {"dense"}, "fused": {"bm25", "sentences", "whole"}}[first.name]
    for query in queries:
        facet, expected = query.aspects[0].facet, set(components)
        if first.name == "fused" and query.has_facet:
            expected.add("facet")
        reranks = searcher.session.takes(query.aspects)
        depth = second.depth if reranks else 0
        if reranks:
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
        plain = [hit._replace(component_scores=None, plan=()) for hit in found]
        assert plain == searcher.search(query, 40)


def test_a_pool_that_names_unknown_papers_is_refused(searcher, queries):
    with pytest.raises(PaperNotFoundError, match=r"found 2 of 3 that it lacks, such as nowhere"):
        searcher.search(queries[0], 5, ["s001", "nowhere", "s998"])


def test_a_facet_without_sentences_is_refused(searcher):
    labelled = Paper("x", "T", (Sentence("A", Facet.METHOD), Sentence("B")), labelled=True)
    with pytest.raises(FacetNotFoundError, match=r"labelled result, found only method; choose another facet"):
        searcher.search(Query(labelled, Facet.RESULT), 5)
    nothing = Paper("x", "T", (Sentence("B"),), labelled=True)
    with pytest.raises(FacetNotFoundError, match="found only other"):
        searcher.search(Query(nothing, Facet.RESULT), 5)


def test_a_paper_without_labels_needs_no_facet(searcher):
    unlabelled = Paper("x", "T", (Sentence("Networks."), Sentence("Photographs.")))
    with pytest.raises(FacetNotFoundError, match=r"found no facet labels; have them predicted"):
        Query(unlabelled, Facet.METHOD).aspects[0].selected_positions()
    assert searcher.search(Query(unlabelled), 5)
    assert searcher.search(Query(unlabelled, positions=(0, 1)), 5)


@pytest.mark.parametrize(
    ("positions", "found"), [((5,), "5"), ((0, -1, 7), "-1, 7"), ((), "none"), ((10**20,), "1" + 20 * "0")]
)
def test_positions_out_of_range_are_refused(searcher, index, positions, found):
    assert len(index.paper("s001").sentences) == 5
    with pytest.raises(UsageError, match=rf"from 0 to 4 \(paper s001 has 5 sentences\), found {found}$"):
        searcher.search(Query(index.paper("s001"), positions=positions), 5)


def test_a_facet_with_positions_is_refused(searcher, index):
    with pytest.raises(UsageError, match="found both"):
        searcher.search(Query(index.paper("s001"), Facet.METHOD, (0,)), 5)


def test_repeated_positions_count_once(searcher, index):
    paper = index.paper("s001")
    once, twice = (searcher.search(Query(paper, positions=p), 9) for p in ((2, 1), (2, 1, 2, 2)))
    assert once == twice


@pytest.mark.parametrize("hits", [0, -1])
def test_less_than_one_hit_is_refused(searcher, queries, hits):
    with pytest.raises(UsageError, match=f"expected `k` of at least 1, found {hits}"):
        searcher.search(queries[0], hits)


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


def test_a_query_from_outside_is_encoded_once(searcher, index, queries, monkeypatch):
    encoded = []
    encode = index.encoder.encode_paper
    monkeypatch.setattr(
        index.encoder, "encode_paper", lambda paper, *reader: encoded.append(paper) or encode(paper, *reader)
    )
    paper = queries[-1].aspects[0].paper
    assert searcher.search(queries[-1], 3)[0].matches
    assert encoded == [paper]
    others = [replace(paper, title=title) for title in ("Ranking code", "Code")]
    found = searcher.batch_search([Query(others[0]), queries[0], Query(others[1])], 3)
    assert all(hit.matches for hits in found for hit in hits)
    assert encoded[0] == paper
    assert sorted(encoded[1:], key=lambda each: each.title) == others[::-1]  # two threads, in any order
