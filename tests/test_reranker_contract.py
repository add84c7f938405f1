"""What every reranker promises, whatever it is made of."""

import math
import threading

import pytest
from support.rerankers import over_index, projected_over_index, request, score

from qbe.query import Query
from qbe.search.rerankers import open_reranker
from qbe.search.stages import MATCHINGS
from qbe.types import Facet, Paper, Sentence
from qbe.util.work import Workers

pytestmark = pytest.mark.slow

RERANKERS = ("tiny_cross_encoder", "tiny_joint_grades", "projections", *MATCHINGS)


@pytest.fixture(scope="module", params=RERANKERS)
def opened(request, index):
    if request.param in MATCHINGS:
        return lambda threads=1: over_index(request.param, index, workers=Workers(threads))
    if request.param == "projections":
        return lambda threads=1: projected_over_index(index, Workers(threads))
    folder = str(request.getfixturevalue(request.param))
    return lambda threads=1: open_reranker(folder, workers=Workers(threads))


@pytest.fixture(scope="module")
def reranker(opened):
    return opened()


@pytest.fixture(scope="module")
def queries(papers, reranker) -> list[Query]:
    one = next(paper for paper in papers if paper.paper_id == "s024")
    sentences = Sentence("Developers search for code.", Facet.BACKGROUND), Sentence("We train a network.")
    outside = Paper("outside", "Ranking code by what it does", sentences, labelled=True)
    others = [Query(one), Query(one, positions=(3, 0)), Query(outside)]
    facets = [*(Query(one, facet) for facet in Facet), Query(outside, Facet.BACKGROUND)]
    return [*facets, *others] if reranker.takes_whole_abstracts else facets


def test_one_judgement_for_each_paper_in_order(index, reranker, queries, papers):
    for query in queries:
        judged = score(reranker, query, papers[:9], vectors=index.vectors)
        assert [score(reranker, query, [paper], vectors=index.vectors)[0] for paper in papers[:9]] == judged
        assert all(type(one.score) is float and math.isfinite(one.score) for one in judged)
        assert len({one.score for one in judged}) > 1
        assert score(reranker, query, papers[8::-1], vectors=index.vectors) == judged[::-1]
        assert score(reranker, query, [], vectors=index.vectors) == []


def test_what_a_query_is_about_counts(index, reranker, papers):
    sentences = (
        Sentence("Search is hard.", Facet.BACKGROUND),
        Sentence("We read pairs of papers.", Facet.METHOD),
        Sentence("Users find more.", Facet.RESULT),
    )
    paper = Paper("short", "Ranking papers", sentences, labelled=True)
    queries = [Query(paper, facet) for facet in Facet]
    if reranker.takes_whole_abstracts and reranker.name != "single-match":
        # To single-match aspects that share their closest sentence are one.
        queries += [Query(paper), Query(paper, positions=(0, 2))]
    found = [score(reranker, query, papers[:5], vectors=index.vectors) for query in queries]
    for number, judged in enumerate(found):
        assert judged not in found[:number]


def test_a_match_names_sentences_of_both(index, reranker, queries, papers):
    for query in queries:
        for paper, (_, match, plan, _) in zip(
            papers[:9], score(reranker, query, papers[:9], vectors=index.vectors), strict=True
        ):
            for moved in plan:
                assert moved.query_position in query.aspects[0].selected_positions()
                assert 0 <= moved.position < len(paper.sentences)
            assert sum(moved.mass for moved in plan) == (pytest.approx(1, abs=1e-4) if plan else 0)
            assert list(plan) == sorted(plan, key=lambda moved: -moved.mass)
            if match is not None:
                assert 0 <= match.query_position < len(query.aspects[0].paper.sentences)
                assert 0 <= match.position < len(paper.sentences)
                assert math.isfinite(match.score)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_queries_are_judged_as_each_alone(index, opened, reranker, queries, papers, threads):
    """To the last bit; progress is told by the calling thread alone."""
    pairs = [
        (query, papers[first : first + 7]) for query, first in zip(queries, range(0, 99, 3), strict=False)
    ]
    pairs += [(queries[0], []), (queries[1], [papers[3], papers[3]])]
    steps, callers = [], set()

    def progress(count):
        steps.append(count)
        callers.add(threading.current_thread())

    requests = [request(query, candidates, index.vectors) for query, candidates in pairs]
    together = opened(threads).batch_score(requests, progress)
    assert together == [
        score(reranker, query, candidates, vectors=index.vectors) for query, candidates in pairs
    ]
    assert sum(steps) == 7 * len(queries) + 2
    assert min(steps) > 0
    assert callers == {threading.current_thread()}
    assert reranker.batch_score([]) == []


@pytest.mark.parametrize(
    "text", ["🧬", "retina 🧬 数学 \U00010348", "\u200b", "?! \\ [SEP] [CLS]", "x " * 3000]
)
def test_any_text_can_be_judged(index, reranker, papers, text):
    strange = Paper("strange", text, (Sentence(text, Facet.METHOD), Sentence("A sentence.")), labelled=True)
    for query, candidate in ((strange, papers[0]), (papers[0], strange), (strange, strange)):
        (judged,) = score(reranker, Query(query, Facet.METHOD), [candidate], vectors=index.vectors)
        assert math.isfinite(judged.score)
