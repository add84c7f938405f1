"""Queries of weighted aspects: what they hold, how they are named, and what is refused."""

import itertools
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import messages_of

from qbe import Facet, FileFormatError, Paper, Sentence, UsageError
from qbe.query import Aspect, Query, Topic, TopicAspect, parse_wish, split_query_id
from qbe.runs import format_aspects, parse_aspects, read_topics, write_topics

SENTENCES = (Sentence("A.", Facet.METHOD), Sentence("B."), Sentence("C.", Facet.RESULT))


def paper(paper_id: str) -> Paper:
    return Paper(paper_id, "T", SENTENCES, labelled=True)


P = paper("p1")


def test_queries_of_one_aspect_and_ids_by_hand():
    query = Query(P, Facet.METHOD)
    assert query.aspects == (Aspect(P, Facet.METHOD),)
    assert query == Query.of(Aspect(P, Facet.METHOD))
    assert query.is_single
    assert Query(P, positions=[2, 0]).aspects[0].selected_positions() == (2, 0)
    assert Query(P, Facet.METHOD).query_id == "p1_method"
    assert Query(P).query_id == "p1"
    assert Query(P, positions=(2, 0)).query_id == "p1_sentences-2-0"
    assert Query(paper("p_method")).query_id == "p_method_abstract"
    assert Query(paper("a&b%")).query_id == "a%26b%25"
    assert Query(P, "method") == query
    assert Query(P, "findings") == Query(P, Facet.RESULT)
    assert Aspect(P, "problem", weight=-1.0).facet is Facet.BACKGROUND
    assert split_query_id("p_problem") == ("p_problem", None)
    assert parse_wish(["problem>=2"], ["findings"]) == parse_wish(["background>=2"], ["result"])
    both = Query.of(Aspect(P, Facet.METHOD, weight=2.0), Aspect(paper("p2"), weight=-0.25))
    assert both.query_id == "2*p1_method&-0.25*p2_abstract"
    assert [p.paper_id for p in both.papers] == ["p1", "p2"]


IDS = st.sampled_from(
    ["p", "p_method", "p_abstract", "p_sentences-0", "p_sentences-0-1", "1*p", "p&q", "1*p_method&1*p", "%26"]
) | st.text("p_&%*-01amethod", min_size=1, max_size=12)
ASPECTS = st.builds(
    lambda paper_id, what, weight: Aspect(paper(paper_id), *what, weight=weight),
    IDS,
    st.sampled_from([(None, None), (Facet.METHOD, None), (Facet.RESULT, None), (None, (0,)), (None, (0, 1))]),
    st.sampled_from([1.0, -1.0, 0.5, 0.1, 0.1000000001]),
)
QUERIES = st.lists(ASPECTS, min_size=1, max_size=3).filter(lambda aspects: any(a.weight > 0 for a in aspects))


def key(query: Query) -> object:
    """What tells queries apart: of a single aspect the weight does not matter."""
    aspects = [(a.paper.paper_id, a.facet, a.positions, a.weight) for a in query.aspects]
    return aspects[0][:3] if len(aspects) == 1 else aspects


@settings(max_examples=40)
@given(st.lists(QUERIES, min_size=2, max_size=8))
def test_ids_never_collide(lists):
    queries = [Query.of(*aspects) for aspects in lists]
    for one, two in itertools.combinations(queries, 2):
        assert (one.query_id == two.query_id) == (key(one) == key(two))
    assert all(query.query_id.split() == [query.query_id] for query in queries)


def test_what_is_no_query():
    with pytest.raises(UsageError, match="found both"):
        Query(P, Facet.METHOD, (0,))
    with pytest.raises(UsageError, match="at least one aspect with a positive weight"):
        Query.of(Aspect(P, weight=-1))
    with pytest.raises(UsageError, match="at least one aspect"):
        Query.of()
    for weight in (0, float("nan"), float("inf"), 1e308, -1e308, 1e-308):
        with pytest.raises(UsageError, match="expected a weight between 1e-06 and 1e\\+06"):
            Aspect(P, weight=weight)
    with pytest.raises(TypeError, match=r"expected qbe.Aspect objects, found "):
        Query.of(P)
    with pytest.raises(TypeError, match="expected sentence positions"):
        Query(P, positions=[0.5])


def test_aspects_by_hand():
    text = "background -0.5*method sentences:0,3@p7 2*abstract@10.1000/x@y*z"
    assert parse_aspects("p1", text) == (
        TopicAspect("p1", Facet.BACKGROUND),
        TopicAspect("p1", Facet.METHOD, None, -0.5),
        TopicAspect("p7", None, (0, 3)),
        TopicAspect("10.1000/x@y*z", None, None, 2.0),
    )
    assert format_aspects("p1", parse_aspects("p1", text)) == text


TOPIC_ASPECTS = st.builds(
    TopicAspect,
    st.text("p1@*:,_.", min_size=1, max_size=5),
    st.none(),
    st.none() | st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple),
    st.floats(-5, 5).filter(lambda weight: abs(weight) > 1e-6),
) | st.builds(TopicAspect, st.just("p1"), st.sampled_from(Facet), st.none(), st.floats(0.1, 5))


@given(st.lists(TOPIC_ASPECTS, min_size=1, max_size=4))
def test_aspects_are_read_back(aspects):
    if any(aspect.weight > 0 for aspect in aspects):
        assert parse_aspects("p1", format_aspects("p1", aspects)) == tuple(aspects)


def test_topics_with_aspects_are_read_back(tmp_path):
    topics = [
        Topic("q1", "p1", Facet.METHOD),
        Topic("q2", "p1"),
        Topic("q3", "p1", None, parse_aspects("p1", "background -1*method@p2")),
    ]
    write_topics(tmp_path / "topics.tsv", topics)
    assert (tmp_path / "topics.tsv").read_text().splitlines() == [
        "query_id\tpaper_id\tfacet\taspects",
        "q1\tp1\tmethod\t",
        "q2\tp1\t\t",
        "q3\tp1\t\tbackground -1*method@p2",
    ]
    assert read_topics(tmp_path / "topics.tsv") == topics
    (tmp_path / "topics.tsv").write_text("query_id\tpaper_id\tfacet\taspects\nq1\tp1\nq2\tp1\tmethod\n")
    assert read_topics(tmp_path / "topics.tsv") == [Topic("q1", "p1"), Topic("q2", "p1", Facet.METHOD)]


def test_bad_aspects_name_their_line(tmp_path, told):
    rows = ["\tmethods", "\tmethod 0*result", "\t-1*method", "method\tresult", "\tsentences:"]

    def read(row: str) -> None:
        (tmp_path / "topics.tsv").write_text(f"query_id\tpaper_id\tfacet\taspects\nq\tp1\t{row}\n")
        read_topics(tmp_path / "topics.tsv")

    told("aspects of topics", messages_of([partial(read, row) for row in rows], FileFormatError, tmp_path))


def test_a_paper_without_sentences_is_no_query():
    with pytest.raises(UsageError, match="expected a paper with sentences, found p1 without"):
        Query(Paper("p1", "On fish", ()))
