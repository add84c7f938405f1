"""Queries of several facets: candidates graded in each, and ranked by how likely they are as asked."""

import csv
import io
import json
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from support.messages import refusals
from support.searching import ids

from qbe import FacetNotFoundError, Index, PaperFilter, Pipeline, SearchRequest, SearchSession, UsageError
from qbe.query import COMPETITORS, PLAIN, SHAPES, Aspect, Query, parse_wish
from qbe.runs import read_run
from qbe.search.explore import LIKELY_FROM, _as_asked
from qbe.search.grading import nothing_fits
from qbe.search.stages import BM25, CrossEncoder, Dense, Fused, Grades, Matching, Projections, Stages
from qbe.types import Facet, Hit, Paper, Sentence

pytestmark = pytest.mark.slow

BACKGROUND, METHOD, RESULT = Facet
ALL = 127  # papers of the sample without the query's own
UNLIKE = {BACKGROUND: 1.0, METHOD: -0.5}


@pytest.fixture(scope="module")
def by_vectors(graded) -> Iterator[Pipeline]:
    with Pipeline(graded, Dense()) as pipeline:
        yield pipeline


@pytest.fixture
def query(graded):
    return lambda weights, paper_id="s036": Query.by_facets(graded.paper(paper_id), weights)


@pytest.fixture
def explore(search, graded_index):
    return partial(search, "--first-stage", "dense", "--rerank", "none", folder=graded_index)


@pytest.mark.parametrize("weights", [UNLIKE, SHAPES[COMPETITORS], {METHOD: 2.0, RESULT: 1.0, BACKGROUND: -1}])
def test_hits_are_graded_in_every_facet_and_ranked_by_the_chance_of_all(by_vectors, query, weights):
    hits = by_vectors.search(query(weights), ALL, explain=True)
    assert len(hits) == ALL
    assert "s036" not in ids(hits)
    for hit in hits:
        assert list(hit.grades) == ["background", "method", "result"]
        assert all(0 <= grade <= 3 for grade in hit.grades.values())
        assert list(hit.component_scores) == [facet.value for facet in weights]
        chance = np.prod([hit.component_scores[facet.value] ** abs(w) for facet, w in weights.items()])
        assert hit.score == pytest.approx(chance, abs=1e-6)
        assert 0 <= hit.score <= 1
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))
    assert by_vectors.search(query(weights), 4, explain=True) == hits[:4]


def test_of_several_papers_the_two_that_fit_best_count_and_unlike_ones_as_one():
    papers = [Paper(str(number), "", (Sentence("We cut.", METHOD),)) for number in range(5)]
    weights = (1.0, 1.0, 1.0, -1.5, -1.5)
    aspects = [Aspect(paper, METHOD, weight=each) for paper, each in zip(papers, weights, strict=True)]
    chances = [np.array([chance]) for chance in (0.9, 0.5, 0.1, 0.25, 0.81)]
    assert _as_asked(chances, aspects).tolist() == pytest.approx([0.7 * 0.5 * 0.9])
    assert _as_asked(chances[:1], aspects[:1]).tolist() == [0.9]


def test_likely_papers_are_counted(graded, query):
    session = SearchSession(graded, Stages(Dense()))
    for weights in (SHAPES[COMPETITORS], UNLIKE):
        ranking = session.search(SearchRequest(query(weights), k=3))
        hits = session.search(SearchRequest(query(weights), ALL)).hits
        likely = sum(hit.score >= LIKELY_FROM for hit in hits)
        told = f"papers that are likely to be what you ask for: {likely}"
        best = max(hit.score for hit in hits)
        none = f"no paper has a chance of 0.6 of being what you ask for: the best has {best:.2f}"
        told = told if likely else nothing_fits(hits, BACKGROUND) or nothing_fits(hits, METHOD) or none
        assert ranking.notes == ((told,) if weights is not UNLIKE else ())
    session.close()


@pytest.mark.parametrize("labelled", [True, False])
def test_a_paper_under_another_id_is_graded_highest_and_labelled_if_it_is_not(by_vectors, graded, labelled):
    paper = graded.paper("s036")
    sentences = paper.sentences if labelled else tuple(Sentence(each.text) for each in paper.sentences)
    copy = Paper("copy", paper.title, sentences, labelled=labelled)
    hits = by_vectors.search(Query.by_facets(copy, SHAPES[COMPETITORS]), ALL)
    assert hits[0].paper_id == "s036"
    assert list(hits[0].grades) == ["background", "method", "result"]
    if labelled:
        for facet, grade in hits[0].grades.items():
            assert grade == max(hit.grades[facet] for hit in hits)


def assert_alike(hits: list[Hit], expected: list[Hit]) -> None:
    """The same papers, scores and grades; those whose scores differ in the last bit may change places."""
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-9)
    assert sorted(ids(hits)) == sorted(ids(expected))
    by_id = {hit.paper_id: hit for hit in expected}
    for hit in hits:
        assert hit.score == pytest.approx(by_id[hit.paper_id].score, abs=1e-9)
        assert hit.grades == pytest.approx(by_id[hit.paper_id].grades, abs=1.1e-4)  # of 4 decimals


def test_a_paper_of_a_pool_is_graded_as_in_the_whole_index(by_vectors, query):
    pool = ["s051", "s036", "s001", "s059", "s100", "s051"]
    whole = {hit.paper_id: hit for hit in by_vectors.search(query(UNLIKE), ALL)}
    hits = by_vectors.search(query(UNLIKE), 10, pool)
    of_pool = [whole[name] for name in {*pool} - {"s036"}]
    assert_alike(hits, sorted(of_pool, key=lambda hit: (-hit.score, hit.paper_id)))
    assert by_vectors.search(query(UNLIKE), 2, pool) == hits[:2]
    assert by_vectors.search(query(UNLIKE), 10, []) == by_vectors.search(query(UNLIKE), 10, ["s036"]) == []


def test_a_filter_leaves_grades_and_order_alone(by_vectors, graded, query):
    years = PaperFilter(years=(2021, None))
    hits = by_vectors.search(query(UNLIKE), ALL)
    passing = [hit for hit in hits if int(graded.paper(hit.paper_id).year) >= 2021]
    assert 3 < len(passing) < ALL
    assert_alike(by_vectors.search(query(UNLIKE), ALL, filter=years), passing)
    pool = ids(hits)[::3]
    of_pool = [hit for hit in passing if hit.paper_id in pool]
    assert_alike(by_vectors.search(query(UNLIKE), ALL, pool, filter=years), of_pool)


def test_the_first_stage_brings_candidates_alone(by_vectors, graded, query):
    """All papers of so small an index are candidates, whatever finds them."""
    with Pipeline(graded, Fused()) as fused:
        assert_alike(fused.search(query(UNLIKE), ALL), by_vectors.search(query(UNLIKE), ALL))
    with Pipeline(graded, BM25()) as bm25:  # those with a word in common
        assert_alike(bm25.search(query(UNLIKE), 5), by_vectors.search(query(UNLIKE), 5))


def test_explained_hits_have_the_chance_of_each_aspect(by_vectors, query):
    assert by_vectors.search(query(UNLIKE), 1)[0].component_scores is None
    explanation = by_vectors.explain(query(UNLIKE), 1)
    assert len(explanation.sentences) == 2
    assert explanation.hits == by_vectors.search(query(UNLIKE), 1, explain=True)
    (hit,) = by_vectors.search(query(UNLIKE), 1)
    assert {match.aspect for match in hit.matches} == {0, 1}
    assert by_vectors.search(query(UNLIKE), 1, matches=False)[0].matches == ()


def test_a_batch_gives_what_single_searches_give(by_vectors, graded, query):
    others = Query(graded.paper("s024"), METHOD), Query(graded.paper("s036"))
    queries = [query(UNLIKE), others[0], query(SHAPES[COMPETITORS], "s118"), others[1], query(UNLIKE)]
    pools = [None, None, ["s001", "s002", "s003"], None, ["s051"]]
    together = by_vectors.batch_search(queries, 7, pools)
    assert together == [by_vectors.search(each, 7, pool) for each, pool in zip(queries, pools, strict=True)]
    assert [ranked[0].grades is not None for ranked in together] == [True, False, True, False, True]


def test_a_facet_that_the_querys_paper_lacks_has_no_grade(by_vectors):
    sentences = (Sentence("Citations are hard to find.", BACKGROUND), Sentence("We walk a graph.", METHOD))
    paper = Paper("draft", "Finding citations", sentences, labelled=True)
    hits = by_vectors.search(Query.by_facets(paper, UNLIKE))
    assert len(hits) == 10
    assert all(list(hit.grades) == ["background", "method"] for hit in hits)
    with pytest.raises(FacetNotFoundError, match="paper draft to have sentences labelled result, found only"):
        by_vectors.search(Query.by_facets(paper, {RESULT: 1, METHOD: -1}))


def test_queries_of_one_aspect_and_with_one_that_is_no_facet_are_not_graded(by_vectors, graded):
    paper = graded.paper("s036")
    mixed = [Query.of(Aspect(paper, BACKGROUND), Aspect(paper, positions=each)) for each in (None, (1,))]
    for asked in [*(Query(paper, facet) for facet in (*Facet, None)), *mixed]:
        assert [hit.grades for hit in by_vectors.search(asked)] == [None] * 10


def test_without_a_grade_model_of_the_encoder_nothing_is_graded(tiny_index):
    with Index(tiny_index) as tiny, Pipeline(tiny, Dense()) as pipeline:
        asked = Query.by_facets(tiny.paper("s036"), SHAPES["same-problem-other-method"])
        hits = pipeline.search(asked, ALL)
        assert [hit.grades for hit in hits] == [None] * ALL
        with pytest.raises(UsageError, match="expected an index with vectors of facet-encoder or"):
            pipeline.grade(asked, hits)


@pytest.mark.parametrize("reranker", [Projections(), CrossEncoder(), Matching(), Grades(), len])
def test_no_reranker_changes_what_grades_rank(graded, query, by_vectors, reranker):
    with Pipeline(graded, Stages(Dense(), reranker)) as pipeline:
        assert pipeline.search(query(UNLIKE), ALL) == by_vectors.search(query(UNLIKE), ALL)


def test_hits_of_any_query_are_graded_as_a_search_grades_them(by_vectors, graded, query):
    grades = {hit.paper_id: hit.grades for hit in by_vectors.search(query(UNLIKE), ALL)}
    hits = by_vectors.search(Query(graded.paper("s036"), METHOD), 20)
    again = by_vectors.grade(Query(graded.paper("s036"), METHOD), hits)
    assert [hit._replace(grades=None) for hit in again] == hits
    assert [hit.grades for hit in again] == [grades[hit.paper_id] for hit in hits]
    assert by_vectors.grade(query(UNLIKE), []) == []


def test_a_paper_without_facets_cannot_be_graded_by(by_vectors):
    paper = Paper("plain", "A title", (Sentence("Thanks to all."),), labelled=True)
    hits = by_vectors.search(Query(paper), 2)
    with pytest.raises(FacetNotFoundError, match="sentences of a facet to be graded by, found none"):
        by_vectors.grade(Query(paper), hits)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_names_and_are_what_their_facets_come_to(explore, by_vectors, query, name):
    (line,) = explore("--paper", "s036", "--like", name, "--hits", 4, "--format", "json").splitlines()
    record = json.loads(line)
    assert record["query_id"] == query(SHAPES[name]).query_id
    assert [aspect["weight"] for aspect in record["aspects"]] == list(SHAPES[name].values())
    found = [(hit["paper_id"], hit["grades"]) for hit in record["hits"]]
    assert found == [(hit.paper_id, hit.grades) for hit in by_vectors.search(query(SHAPES[name]), 4)]
    wish = parse_wish(*([str(f) for f, weight in SHAPES[name].items() if weight * s > 0] for s in (1, -1)))
    assert wish == (SHAPES[name], PLAIN)


def test_what_is_liked_and_disliked_with_weights(explore):
    weighted = "--like result --like method:2 --unlike background:0.5"
    query_id = "1*s036_result&2*s036_method&-0.5*s036_background"
    for arguments, expected in ((weighted, query_id), ("--like method:3", "s036_method")):
        run = explore("--paper", "s036", *arguments.split(), "--hits", 2)
        assert [line.split()[0] for line in run.splitlines()] == [expected] * 2


def test_tables_tell_the_grades(explore, by_vectors, query):
    arguments = ("--paper", "s036", "--like", "competitors", "--hits", 1, "--format")
    (hit,) = by_vectors.search(query(SHAPES[COMPETITORS]), 1)
    grades = ", ".join(f"{name} {grade:.1f}" for name, grade in hit.grades.items())
    assert f"{grades} of 3" in " ".join(explore(*arguments, "table").split())
    assert f"{grades} of 3" in explore(*arguments, "markdown").replace("\\", "")
    (row,) = csv.DictReader(io.StringIO(explore(*arguments, "csv")))
    assert {facet.value: float(row[facet.value]) for facet in Facet} == hit.grades
    (row,) = csv.DictReader(io.StringIO(explore("--paper", "s036", "--hits", 1, "--format", "csv")))
    assert all(0 <= float(row[facet.value]) <= 3 for facet in Facet)  # of a whole abstract, too


def test_explored_topics_keep_their_ids_and_pools(explore, by_vectors, query, tmp_path):
    topics, pools = tmp_path / "topics.tsv", tmp_path / "pools.tsv"
    shape = "same-method-other-problem"
    topics.write_text("query_id\tpaper_id\tfacet\na\ts118\tmethod\nb\ts036\t\nc\ts118\tresult\n")
    arguments = ("--topics", topics, "--like", shape, "--hits", 6)
    explore(*arguments, "--output", tmp_path / "run.trec")
    one, other = (ids(by_vectors.search(query(SHAPES[shape], name), 6)) for name in ("s118", "s036"))
    run = read_run(tmp_path / "run.trec").rankings
    assert {query_id: ids(hits) for query_id, hits in run.items()} == {"a": one, "b": other, "c": one}
    pools.write_text("query_id\tpaper_id\na\ts001\nb\ts002\nb\ts003\nc\ts004\n")
    lines = explore(*arguments, "--pool", pools).splitlines()
    assert sorted(" ".join(line.split()[:3:2]) for line in lines) == ["a s001", "b s002", "b s003", "c s004"]


WRONG = """\
--like topic
--like method:1e308 background:1e308
--like method method:2
--like method --unlike method
--like method:0
--like method:-1
--like method:nan
--like method --unlike background:inf
--like method:one
--unlike method
--like competitors --unlike method
--like competitors method
"""


def test_wrong_weights_of_facets(explore, told):
    told("weights of facets", refusals(explore, (f"--paper s036 {line}" for line in WRONG.splitlines())))
