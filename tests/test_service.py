"""Answers of the service: those of the library, as records, for many callers at a time."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from qbe import Facet, PaperFilter, Query, SearchConfig
from qbe.cite.config import CiteConfig
from qbe.cite.recommender import Recommender
from qbe.errors import CorpusError, PaperNotFoundError, UsageError
from qbe.index.building.settings import BuildSettings
from qbe.index.opening import build_index, open_index
from qbe.search.pipeline import Pipeline
from qbe.service import lanes
from qbe.service.lanes import Lane, OverloadedError, WaitingLine
from qbe.service.requests import (
    Comparison,
    Export,
    PastedText,
    RecommendationRequest,
    SearchRequest,
    problem_in_words,
)
from qbe.service.service import FIRST, RERANKED, Limits, SearchService, TooSlowError
from qbe.service.titles import TitleSearch

ABSTRACT = (
    "Old letters are hard to read. We propose a method that trains a neural network on scanned pages. "
    "Our results show that it reads nine in ten of them."
)


@pytest.fixture(scope="module")
def index(graded_index):
    with open_index(graded_index, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def service(index):
    with SearchService(index) as opened:
        yield opened


def ids(record):
    return [hit["paper_id"] for hit in record["hits"]]


def test_a_reranked_search_gives_what_the_pipeline_gives(index, service):
    record = service.search(SearchRequest(paper_ids=["s036"], facet="method", k=7))
    with Pipeline.open(index, SearchConfig()) as pipeline:
        expected = pipeline.search(Query(index.paper("s036"), Facet.METHOD), 8)[:7]
    assert ids(record) == [hit.paper_id for hit in expected]
    assert [hit["score"] for hit in record["hits"]] == [hit.score for hit in expected]
    assert record["stage"] == RERANKED
    assert [hit["rank"] for hit in record["hits"]] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("rerank", ["cascade", "projections"])
def test_hits_are_reranked_as_the_service_was_told(index, rerank):
    with SearchService(index, rerank=rerank) as service:
        record = service.search(SearchRequest(paper_ids=["s036"], facet="method", k=7))
        shape = service.search(SearchRequest(paper_ids=["s036"], explore="competitors", k=3))
    with Pipeline.open(index, SearchConfig(rerank=rerank)) as pipeline:
        expected = pipeline.search(Query(index.paper("s036"), Facet.METHOD), 7)
    assert [hit["score"] for hit in record["hits"]] == [hit.score for hit in expected]
    assert (record["stage"], shape["stage"]) == (RERANKED, FIRST)  # grades are by stored vectors alone
    assert all(hit["grades"] for hit in (*record["hits"], *shape["hits"]))


def test_a_reranking_that_cannot_be_had(index, tiny_index):
    with pytest.raises(UsageError, match="expected `rerank` of by-facet, cascade, projections, found 'none'"):
        SearchService(index, rerank="none")
    with (
        open_index(tiny_index) as other,
        pytest.raises(UsageError, match="`rerank` projections, found those of"),
    ):
        SearchService(other, rerank="cascade")


def test_a_shape_gives_what_the_pipeline_gives(index, service):
    explore = {"explore": "same-problem-other-method", "year_from": 2024}  # few to rerank
    record = service.search(SearchRequest(paper_ids=["s036"], k=5, **explore))
    weights, only = {Facet.BACKGROUND: 1.0, Facet.METHOD: -1.0}, PaperFilter(years=(2024, None))
    with Pipeline.open(index, SearchConfig(filter=only)) as pipeline:
        expected = pipeline.search(Query.by_facets(index.paper("s036"), weights), 6)[:5]
    assert ids(record) == [hit.paper_id for hit in expected]
    assert record["hits"][0]["grades"] == expected[0].grades


def test_hits_have_grades_in_all_facets_whatever_they_were_found_by(service):
    record = service.search(SearchRequest(paper_ids=["s036"], facet="method", k=3, rerank=False))
    assert record["stage"] == FIRST
    assert all(set(hit["grades"]) == {"background", "method", "result"} for hit in record["hits"])
    assert all(0 <= grade <= 3 for hit in record["hits"] for grade in hit["grades"].values())


def test_a_whole_abstract_is_not_reranked_and_the_answer_says_so(service):
    assert service.search(SearchRequest(paper_ids=["s036"], k=1))["stage"] == FIRST


def test_pages_joined_are_the_whole_ranking(service):
    whole = ids(service.search(SearchRequest(paper_ids=["s036"], facet="method", k=100, rerank=False)))
    start, pages = 0, []
    while start is not None:
        page = service.search(
            SearchRequest(paper_ids=["s036"], facet="method", k=30, start=start, rerank=False)
        )
        pages += ids(page)
        start = page["next_start"]
    assert pages[:100] == whole
    assert len(pages) == len(set(pages)) == 127


def test_excluded_papers_leave_no_gap(service):
    first = ids(service.search(SearchRequest(paper_ids=["s036"], facet="method", k=4, rerank=False)))
    rest = service.search(
        SearchRequest(paper_ids=["s036"], facet="method", k=3, rerank=False, exclude=[first[0]])
    )
    assert ids(rest) == first[1:]


def test_filters_keep_their_papers(index, service):
    request = SearchRequest(paper_ids=["s036"], facet="method", year_from=2020, k=50, rerank=False)
    record = service.search(request)
    assert record["passing"] < record["papers"] == 128
    assert all(int(index.paper(paper_id).year) >= 2020 for paper_id in ids(record))


def test_a_pasted_abstract_is_labelled_and_has_no_id(service):
    record = service.search(SearchRequest(text=ABSTRACT, title="Letters", facet="method", k=2))
    (paper,) = record["query"]["papers"]
    assert paper["paper_id"] is None
    assert [sentence["facet"] for sentence in paper["sentences"]] == ["background", "method", "result"]
    assert [sentence["selected"] for sentence in paper["sentences"]] == [False, True, False]


def test_picked_sentences_are_the_query(index, service):
    record = service.search(SearchRequest(paper_ids=["s036"], sentences=[2], k=3, rerank=False))
    with Pipeline.open(index, SearchConfig(rerank="none", separate=0.35)) as pipeline:
        expected = pipeline.search(Query(index.paper("s036"), positions=[2]), 3)
    assert ids(record) == [hit.paper_id for hit in expected]


def test_several_papers_and_others_not_wanted(service):
    record = service.search(
        SearchRequest(paper_ids=["s036", "s051"], not_paper_ids=["s031"], facet="method", k=5, rerank=False)
    )
    assert not {"s036", "s051", "s031"} & set(ids(record))
    assert len(record["query"]["papers"]) == 3


def test_picked_sentences_are_those_of_the_paper_that_is_liked(service):
    request = SearchRequest(paper_ids=["s036"], not_paper_ids=["s051"], sentences=[4], k=3, rerank=False)
    liked, disliked = service.search(request)["query"]["aspects"]
    assert (liked["positions"], liked["weight"]) == ([4], 1.0)
    assert disliked["positions"] == list(range(len(service.index.paper("s051").sentences)))


def test_answers_are_json(service):
    record = service.search(
        SearchRequest(paper_ids=["s036"], like=["background"], unlike=["result:0.5"], k=3, rerank=False)
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_a_comparison_has_grades_and_the_closest_sentences(index, service):
    record = service.compare(Comparison(paper_id="s036", other_id="s051"))
    pair = record["facets"]["method"]["pair"]
    assert pair["sentence"] == index.paper("s036").sentences[pair["position"]].text
    assert index.paper("s036").sentences[pair["position"]].facet is Facet.METHOD
    assert pair["other_sentence"] == index.paper("s051").sentences[pair["other_position"]].text
    assert 0 <= record["facets"]["background"]["grade"] <= 3


def test_a_pasted_abstract_can_be_compared(service):
    record = service.compare(Comparison(text=ABSTRACT, other_id="s051"))
    assert record["paper"]["paper_id"] is None
    assert record["other"]["paper_id"] == "s051"


def test_recommendations_leave_out_what_is_cited_and_say_what_is_unknown(service):
    request = RecommendationRequest(text=ABSTRACT, k=3)
    first = ids(service.recommend(request))
    again = service.recommend(RecommendationRequest(text=ABSTRACT, k=5, cited=[first[0]], exclude=["nope"]))
    assert first[0] not in ids(again)
    assert again["notes"] == ["1 paper is not in the index and left out"]


def test_recommendations_with_a_filter_are_those_of_the_library_by_one_recommender(index, service):
    requests = [
        RecommendationRequest(paper_ids=["s036"], k=5, **years)
        for years in ({}, {"year_to": 2012}, {"year_from": 2013})
    ]
    found = [ids(service.recommend(request)) for request in requests]
    lane = service._citations
    for request, hits in zip(requests, found, strict=True):
        with Recommender.open(index, CiteConfig(filter=request.paper_filter)) as recommender:
            expected = recommender.recommend(index.paper("s036"), 5)
        assert hits == [hit.paper_id for hit in expected]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda request: ids(service.recommend(request)), requests)) == found
    assert service._citations is lane
    assert service.about()["citations"]


def test_recommendations_that_would_wait_too_long_are_refused(index):
    request = RecommendationRequest(paper_ids=["s036"], k=1)
    with SearchService(index, Limits(reranked=5.0)) as service:
        service.recommend(request)
        lane = service._citations
        lane._seconds, lane._under_way = 7.0, 1  # as if one were under way
        with pytest.raises(OverloadedError, match="try again in 7 s"):
            service.recommend(request)


def test_an_index_that_cannot_recommend_says_so(tiny_index, tmp_path, sample, tiny_encoder):
    vectors_alone = BuildSettings(bm25=False, encoder=str(tiny_encoder))
    build_index(tmp_path / "index", sample / "corpus.jsonl", vectors_alone).close()
    for folder, lacking in ((tmp_path / "index", "postings"), (tiny_index, "vectors of facet-encoder")):
        with open_index(folder) as index, SearchService(index) as service:
            assert service.about()["citations"] is False
            message = f"expected an index with {lacking} to recommend citations, found one without"
            with pytest.raises(UsageError, match=f"^{message}$"):
                service.recommend(RecommendationRequest(paper_ids=["s036"]))


def test_labels_of_a_pasted_abstract(service):
    sentences = service.label(PastedText(text=ABSTRACT))["sentences"]
    assert [sentence["facet"] for sentence in sentences] == ["background", "method", "result"]


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("bibtex", "@misc{"),
        ("ris", "TY  - "),
        ("csv", "paper_id,title,authors"),
        ("markdown", "- **Two Crops"),
    ],
)
def test_exports(service, form, begin):
    text = service.export(Export(paper_ids=["s036", "s051", "s036"], format=form))
    assert text.startswith(begin)
    assert text.count("Two Crops of a Paragraph") >= 1


def test_an_export_as_json_has_a_line(service):
    (record,) = map(json.loads, service.export(Export(paper_ids=["s036"], format="json")).splitlines())
    assert record["paper_id"] == "s036"


def test_titles_are_completed(index):
    titles = TitleSearch(index)
    titles.wait()
    assert [title.paper_id for title in titles.complete("Crops two par", 3)] == ["s036"]
    assert titles.complete("s051", 3)[0].paper_id == "s051"
    assert titles.complete("no such words", 3) == []
    assert titles.complete("  ", 3) == []
    assert len(titles.complete("a", 4)) == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected paper_ids or text, found neither"),
        ({"paper_ids": ["s036"], "text": "a"}, "expected paper_ids or text, found both"),
        ({"text": "  "}, "expected an abstract as text, found white space"),
        ({"paper_ids": ["s036"], "k": 101}, "k: input should be less than or equal to 100"),
        (
            {"paper_ids": ["s036"], "k": 100, "start": 950},
            "expected start and k of at most 1000 together, found 1050",
        ),
        (
            {"paper_ids": ["s036"], "facet": "method", "explore": "competitors"},
            "expected at most one of facet, sentences, explore, like and unlike, found facet and explore",
        ),
        (
            {"paper_ids": ["s036"], "unlike": ["method"]},
            "expected a facet in `like`, found none; a search starts from what is alike",
        ),
        (
            {"paper_ids": ["s036", "s051"], "sentences": [0]},
            "expected one paper to count sentences of, found 2",
        ),
        (
            {"paper_ids": ["s036"], "year_from": 2020, "year_to": 2010},
            "expected `years` from an earlier to a later one, found 2020-2010",
        ),
        ({"paper_ids": ["s036"], "where": ["x"]}, "expected `where` such as venue=SIGIR, found 'x'"),
        ({"text": "a\0b"}, "text: expected text, found a NUL character"),
        ({"query": "On fish"}, "expected a field of the request, found 'query'; did you mean text?"),
    ],
)
def test_bad_requests_are_told_in_one_line(values, message):
    with pytest.raises(ValidationError) as caught:
        SearchRequest(**values)
    assert problem_in_words(caught.value.errors()) == message


def test_unknown_papers_and_positions(service):
    with pytest.raises(PaperNotFoundError, match="found 'nope'"):
        service.search(SearchRequest(paper_ids=["nope"]))
    with pytest.raises(UsageError, match="sentence positions from 0 to 4"):
        service.search(SearchRequest(paper_ids=["s036"], sentences=[9]))
    with pytest.raises(PaperNotFoundError):
        service.compare(Comparison(paper_id="s036", other_id="nope"))
    with pytest.raises(CorpusError):
        service.label(PastedText(text=" . "[:1]))


def test_many_callers_get_what_each_would_get_alone(service):
    requests = [
        SearchRequest(paper_ids=[f"s{number:03}"], facet=facet, k=k, rerank=False)
        for number in range(1, 13)
        for facet, k in (("background", 5), (None, 3))
    ]
    alone = [ids(service.search(request)) for request in requests]
    with SearchService(service.index, Limits(first_stage=60)) as patient, ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda request: ids(patient.search(request)), requests)) == alone


class _Held(Pipeline):
    """A pipeline whose searches wait until they may go on."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.__dict__.update(pipeline.__dict__)
        self.may_go_on, self.batches = threading.Event(), []

    def batch_search(self, queries, k=10, pools=None, **options):
        self.batches.append(len(queries))
        assert self.may_go_on.wait(30)
        return super().batch_search(queries, k, pools, **options)


@pytest.fixture
def held(index):
    with Pipeline.open(index, SearchConfig(rerank="none")) as pipeline:
        yield _Held(pipeline)


def test_searches_that_wait_are_made_together(index, held):
    with Lane(held, patience=60) as lane:
        queries = [Query(index.paper(f"s{number:03}")) for number in range(1, 8)]
        answers = [lane.submit(queries[0], 3)]
        while not held.batches:
            pass
        answers += [lane.submit(query, 3) for query in queries[1:6]]
        other = lane.submit(queries[6], 4)
        assert lane.waiting == 7
        held.may_go_on.set()
        assert [len(answer.result(30)) for answer in answers] == [3] * 6
        assert len(other.result(30)) == 4
    assert held.batches == [1, 5, 1]


def test_what_is_wrong_with_one_search_is_not_the_others_fault(index, held):
    with Lane(held, patience=60) as lane:
        first = lane.submit(Query(index.paper("s001")), 3)
        while not held.batches:
            pass
        good = lane.submit(Query(index.paper("s002")), 3)
        bad = lane.submit(Query(index.paper("s002"), positions=[99]), 3)
        held.may_go_on.set()
        assert len(first.result(30)) == len(good.result(30)) == 3
        with pytest.raises(UsageError, match="sentence positions"):
            bad.result(30)


def test_searches_that_would_wait_too_long_are_refused(index, held):
    with Lane(held, patience=0.01) as lane:
        held.may_go_on.set()
        lane.submit(Query(index.paper("s001")), 3).result(30)
        assert lane._seconds > 0  # from now on it is known how long a search takes
        lane._seconds = 2.5
        held.may_go_on.clear()
        under_way = lane.submit(Query(index.paper("s001")), 3)
        with pytest.raises(OverloadedError, match="try again in 3 s") as caught:
            lane.submit(Query(index.paper("s002")), 3)
        assert caught.value.retry_after == 3
        held.may_go_on.set()
        assert len(under_way.result(30)) == 3
    with pytest.raises(OverloadedError):
        lane.submit(Query(index.paper("s001")), 3)


def test_a_lane_closes_though_a_search_that_waits_was_cancelled(index, held):
    lane = Lane(held, patience=60)
    under_way = lane.submit(Query(index.paper("s001")), 3)
    while not held.batches:
        pass
    given_up, refused = (lane.submit(Query(index.paper("s002")), 3) for _ in range(2))
    assert given_up.cancel()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(lane.close)
        with pytest.raises(OverloadedError):
            refused.result(30)
        held.may_go_on.set()
        closing.result(30)
    assert len(under_way.result()) == 3
    assert not lane._thread.is_alive()


def test_searches_that_were_cancelled_neither_count_nor_take_time(monkeypatch):
    now, may_go_on, made = [0.0], threading.Semaphore(0), []

    def search(asked, k, passing):
        assert may_go_on.acquire(timeout=30)
        made.append(asked)
        now[0] += 1.0 * len(asked)
        return [[] for _ in asked]

    monkeypatch.setattr(lanes, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    with WaitingLine(search, patience=2.5) as line:
        may_go_on.release()
        line.submit("a", 3).result(30)
        under_way = line.submit("b", 3)
        while line._waiting:
            pass
        assert line._seconds == 1.0
        assert all(line.submit(None, k).cancel() for k in (3, 3, 3, 4))  # four times, since none waits on
        assert line.waiting == 1
        last = line.submit("c", 3)
        with pytest.raises(OverloadedError, match="try again in 2 s"):
            line.submit("d", 3)
        may_go_on.release(2)
        under_way.result(30), last.result(30)
    assert made == [["a"], ["b"], ["c"]]
    assert line._seconds == 1.0


def test_a_search_that_takes_too_long_is_given_up(index, held):
    with SearchService(index, Limits(search=0.05)) as service:
        service._lanes["fused", False] = Lane(held, patience=60)
        with pytest.raises(TooSlowError, match=r"longer than 0\.05 s"):
            service.search(SearchRequest(paper_ids=["s036"], k=1, rerank=False))
        held.may_go_on.set()


def test_a_new_commit_is_followed(tmp_path, sample, tiny_encoder):
    settings = BuildSettings(encoder=str(tiny_encoder))
    request = SearchRequest(paper_ids=["s036"], k=1, rerank=False)
    with (
        build_index(tmp_path / "index", sample / "corpus.jsonl", settings) as index,
        SearchService(index) as service,
    ):
        first = ids(service.search(request))
        with open_index(tmp_path / "index") as writer:
            writer.delete(first)
        assert service.refresh()
        assert not service.refresh()
        assert first != ids(service.search(request))
        assert service.about()["papers"] == 127


def test_the_filter_of_a_request_is_the_librarys():
    request = SearchRequest(paper_ids=["a"], year_to=2019, categories=["cs.CL"], where=["venue=SIGIR"])
    expected = PaperFilter(years=(None, 2019), categories=("cs.CL",), where={"venue": "SIGIR"})
    assert request.paper_filter == expected
