"""Answers of the service: those of the library, as records, for many callers at a time."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.messages import messages_of
from support.serving import ABSTRACT

from qbe import CiteConfig, CrossEncoder, Facet, Fused, PaperFilter, Projections, Query, Recommender, Stages
from qbe.errors import PaperNotFoundError, UsageError
from qbe.index.index import open_index
from qbe.index.source import BuildSettings
from qbe.search.pipeline import Pipeline, build_index
from qbe.search.queries import distinct_papers
from qbe.search.request import CitationForm, SearchForm
from qbe.search.session import FIRST, RERANKED
from qbe.serve.service import SearchService, bound

pytestmark = pytest.mark.slow


def ids(record):
    return [hit["paper_id"] for hit in record["hits"]]


def like_s036(**more):
    """By the method of one paper, without reranking unless said otherwise."""
    return SearchForm(**{"paper_ids": ["s036"], "facet": "method", "rerank": False} | more)


RERANKERS = {"projections": Projections(), "cross-encoder:depth=20": CrossEncoder(depth=20), "none": None}


@pytest.mark.parametrize("rerank", [None, *RERANKERS])
def test_hits_are_those_of_the_pipeline_with_the_same_stages(graded, rerank):
    stages = None if rerank is None else Stages(Fused(), RERANKERS[rerank])
    with SearchService(graded, rerank=rerank) as service:
        record = service.search(SearchForm(paper_ids=["s036"], facet="method", k=7))
    with Pipeline(graded, stages) as pipeline:
        expected = pipeline.search(Query(graded.paper("s036"), Facet.METHOD), 7)
    assert [(hit["paper_id"], hit["score"]) for hit in record["hits"]] == [hit[:2] for hit in expected]
    assert [hit["rank"] for hit in record["hits"]] == [1, 2, 3, 4, 5, 6, 7]
    assert record["stage"] == (FIRST if rerank == "none" else RERANKED)
    assert all(0 <= grade <= 3 for hit in record["hits"] for grade in hit["grades"].values())


def test_a_reranking_that_cannot_be_had(tiny_index):
    with open_index(tiny_index) as other:
        with pytest.raises(UsageError, match="`rerank`"):
            SearchService(other, rerank="nosuch")
        with pytest.raises(UsageError, match="projections"):
            SearchService(other, rerank="projections")


def test_a_text_of_another_language_is_noted(service):
    text = "Las redes neuronales se usan para detectar incendios de los bosques en las imágenes."
    for answer in (service.search(SearchForm(text=text)), service.recommend(CitationForm(text=text))):
        assert answer["language_note"].startswith("this does not look like English")
    assert service.search(like_s036())["language_note"] == ""


def test_what_the_encoder_does_not_read_of_a_text_is_noted(service):
    text = f"{ABSTRACT} We count {'fish, ' * 300}and nets."
    told = "1 of its sentences longer than the 510 tokens that the encoder reads of one, cut there"
    for answer in (service.search(SearchForm(text=text)), service.recommend(CitationForm(text=text))):
        assert f"the query: {told}; the longest has 605" in answer["notes"]
    assert told not in str(service.search(SearchForm(text=ABSTRACT))["notes"])


def test_a_shape_gives_what_the_pipeline_gives(graded, service):
    explore = {"explore": "same-problem-other-method", "year_from": 2024}  # few to rerank
    record = service.search(SearchForm(paper_ids=["s036"], k=5, **explore))
    weights, only = {Facet.BACKGROUND: 1.0, Facet.METHOD: -1.0}, PaperFilter(years=(2024, None))
    with Pipeline(graded) as pipeline:
        expected = pipeline.search(Query.by_facets(graded.paper("s036"), weights), 5, filter=only)
    assert ids(record) == [hit.paper_id for hit in expected]
    assert record["hits"][0]["grades"] == expected[0].grades


def test_pages_joined_are_the_whole_ranking_and_excluded_papers_leave_no_gap(service):
    whole = ids(service.search(like_s036(k=100)))
    start, pages = 0, []
    while start is not None:
        page = service.search(like_s036(k=30, start=start))
        pages += ids(page)
        start = page["next_start"]
    assert pages[:100] == whole
    assert len(pages) == len(set(pages)) == 127
    assert ids(service.search(like_s036(k=3, exclude=[whole[0]]))) == whole[1:4]


def test_a_hit_that_an_update_removed_meanwhile_is_left_out(index, service, monkeypatch):
    first, gone, third = ids(service.search(like_s036(k=3)))
    monkeypatch.setattr(type(index.reader), "__contains__", lambda _, paper_id: paper_id != gone)
    assert ids(service.search(like_s036(k=3))) == [first, third]


def test_a_pasted_abstract_is_labelled_and_has_no_id(service):
    record = service.search(SearchForm(text=ABSTRACT, title="Letters", facet="method", k=2))
    (paper,) = record["query"]["papers"]
    assert paper["paper_id"] is None
    labels = [(sentence["facet"], sentence["selected"]) for sentence in paper["sentences"]]
    assert labels == [("background", False), ("method", True), ("result", False)]


def test_picked_sentences_of_what_is_liked_are_the_query(graded, service):
    record = service.search(SearchForm(paper_ids=["s036"], sentences=[2], k=3, rerank=False))
    with Pipeline(graded, Stages(Fused())) as pipeline:
        expected = pipeline.search(Query(graded.paper("s036"), positions=[2]), 3)
    assert ids(record) == [hit.paper_id for hit in expected]
    request = SearchForm(paper_ids=["s036"], not_paper_ids=["s051"], sentences=[4], k=3, rerank=False)
    liked, disliked = service.search(request)["query"]["aspects"]
    assert (liked["positions"], liked["weight"]) == ([4], 1.0)
    assert disliked["positions"] == list(range(len(service.index.paper("s051").sentences)))


def test_a_comparison_has_grades_and_the_closest_sentences(graded, service):
    record = service.compare(paper_id="s036", other_id="s051")
    pair = record["facets"]["method"]["pair"]
    assert pair["sentence"] == graded.paper("s036").sentences[pair["position"]].text
    assert graded.paper("s036").sentences[pair["position"]].facet is Facet.METHOD
    assert pair["other_sentence"] == graded.paper("s051").sentences[pair["other_position"]].text
    assert 0 <= record["facets"]["background"]["grade"] <= 3
    pasted = service.compare(text=ABSTRACT, other_id="s051")
    assert (pasted["paper"]["paper_id"], pasted["other"]["paper_id"]) == (None, "s051")


def test_recommendations_leave_out_what_is_cited_and_say_what_is_unknown(service):
    first = ids(service.recommend(CitationForm(text=ABSTRACT, k=3)))
    again = service.recommend(CitationForm(text=ABSTRACT, k=5, cited=[first[0]], exclude=["nope"]))
    assert first[0] not in ids(again)
    assert again["notes"] == ["1 paper is not in the index and left out"]


def test_recommendations_with_a_filter_are_those_of_the_library_by_one_recommender(graded, service):
    years = ({}, {"year_to": 2012}, {"year_from": 2013})
    requests = [CitationForm(paper_ids=["s036"], k=5, **each) for each in years]
    found = [ids(service.recommend(request)) for request in requests]
    for request, hits in zip(requests, found, strict=True):
        with Recommender.open(graded, CiteConfig(filter=request.paper_filter)) as recommender:
            expected = recommender.recommend(graded.paper("s036"), 5)
        assert hits == [hit.paper_id for hit in expected]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda request: ids(service.recommend(request)), requests)) == found
    assert service.about()["citations"]


def test_an_index_that_cannot_recommend_says_so(tiny_index, tmp_path, sample, tiny_encoder):
    vectors_alone = BuildSettings(bm25=False, encoder=str(tiny_encoder))
    build_index(tmp_path / "index", sample / "corpus.jsonl", vectors_alone).close()
    for folder, lacking in ((tmp_path / "index", "postings"), (tiny_index, "vectors of facet-encoder")):
        with open_index(folder) as index, SearchService(index) as service:
            assert service.about()["citations"] is False
            message = f"expected an index with {lacking} to recommend citations, found one without"
            with pytest.raises(UsageError, match=f"^{message}$"):
                service.recommend(CitationForm(paper_ids=["s036"]))


def test_papers_go_by_any_name(service):
    title = "Two Crops of a Paragraph: Self-Supervised Vectors for Suggesting Citations"
    named = ["two crops of a", "S036", title]
    by_name = service.search(like_s036(paper_ids=named, k=3, not_paper_ids=["S051"]))
    assert by_name["hits"] == service.search(like_s036(k=3, not_paper_ids=["s051"]))["hits"]
    assert service.paper("S036")["paper_id"] == "s036"
    compared = service.compare(paper_id="two crops", other_id="S051")
    assert (compared["paper"]["paper_id"], compared["other"]["paper_id"]) == ("s036", "s051")
    assert len(distinct_papers(service.index, ["two crops", "s036"])) == 1
    with pytest.raises(PaperNotFoundError, match=r"found [0-9]+ with 'citation' in their titles: s"):
        service.search(like_s036(paper_ids=["citation"]))
    for text in ("citation", title):  # an id that is gone is never replaced by a title with its word
        with pytest.raises(PaperNotFoundError, match="expected the id, DOI"):
            service.paper(text)


WRONG: list[dict[str, object]] = [
    {},
    {"paper_ids": ["s036"], "text": "a"},
    {"text": "  "},
    {"paper_ids": ["s036"], "k": 101},
    {"paper_ids": ["s036"], "k": 100, "start": 950},
    {"paper_ids": ["s036"], "facet": "method", "explore": "competitors"},
    {"paper_ids": ["s036"], "unlike": ["method"]},
    {"paper_ids": ["s036", "s051"], "sentences": [0]},
    {"paper_ids": ["s036"], "year_from": 2020, "year_to": 2010},
    {"paper_ids": ["s036"], "where": ["x"]},
    {"text": "a\0b"},
    {"query": "On fish"},
]


def test_bad_requests_are_told_in_one_line(service, told):
    requests = [partial(bound, SearchService.search, service, values) for values in WRONG]
    told("requests", messages_of(requests, UsageError))


def echo(_, form: SearchForm) -> SearchForm:
    return form


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"paper_ids": "s036"}, {"paper_ids": ["s036"]}),
        ({"paper_ids": '["s036", "s051"]'}, {"paper_ids": ["s036", "s051"]}),
        ({"paper_ids": [36], "sentences": 2}, {"paper_ids": ["36"], "sentences": [2]}),
        ({"text": 7, "title": "", "facet": None, "like": [""]}, {"text": "7"}),
        ({"paper_ids": ["a"], "sentences": ["1", "2"], "rerank": "false"}, {"sentences": [1, 2]}),
    ],
)
def test_values_are_taken_as_clients_write_them(written, meant):
    form = bound(echo, None, written)()
    assert {name: getattr(form, name) for name in meant} == meant
    assert form.rerank is ("rerank" not in written)


def test_many_callers_get_what_each_would_get_alone(service):
    requests = [
        SearchForm(paper_ids=[f"s{number:03}"], facet=facet, k=k, rerank=False)
        for number in range(1, 5)
        for facet, k in (("background", 5), (None, 3))
    ]
    alone = [ids(service.search(request)) for request in requests]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda request: ids(service.search(request)), requests)) == alone
