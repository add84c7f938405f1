"""Features of candidates worked by hand, and the reranker by grades."""

from functools import partial

import numpy as np
import pytest
from support.messages import messages_of

from qbe.encode.pooling import PaperVectors
from qbe.grade.words import NAMES as WORD_FEATURES
from qbe.grade.words import TechniqueWords
from qbe.index.index import Index
from qbe.query import Query, TopicAspect
from qbe.rerank import graded
from qbe.rerank.graded import FEATURES, EncodedPapers, Features, GradedQuery, Grader, Regrader
from qbe.rerank.projections import FacetProjection, StoredPapers
from qbe.search.opening import open_grader, regrader_opener, stored_vectors
from qbe.search.pipeline import Pipeline
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Fused, Grades
from qbe.shapes import Variety
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.slow

BACKGROUND, METHOD, RESULT = Facet


@pytest.fixture(scope="module")
def index(graded) -> Index:
    return graded


def test_features_by_hand():
    """In two dimensions; the projection for method exchanges them."""
    paper = Paper("q", "", (Sentence("One", BACKGROUND), Sentence("Two", METHOD)), labelled=True)
    vectors = PaperVectors(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 1.0]))
    candidates = [
        Paper("a", "", (Sentence("Three", METHOD), Sentence("Four", None)), labelled=True),
        Paper("b", "", (Sentence("Five", BACKGROUND),), labelled=True),
    ]
    sentences = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    stored = StoredPapers(sentences, np.array([0, 2]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    exchange, same = np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(2)
    projections = {
        facet: FacetProjection(exchange if facet is METHOD else same, np.ones(4)) for facet in Facet
    }
    words = TechniqueWords(["fish"], np.ones(1), np.zeros(1))
    compared = Features(projections, words, lambda _: stored).compare(GradedQuery(paper, vectors), candidates)
    assert compared.values.shape == (2, len(FEATURES))
    assert compared.places == [slice(0, 2), slice(2, 3)]
    np.testing.assert_allclose(compared.cosines[1], [[0.6, 1, 0], [0.8, 0, 1]])
    feature = dict(zip(FEATURES, compared.values.T, strict=True))
    expected = {
        "background.plain.sentences": [1.0, 0.0],  # of the one sentence, its best match
        "background.plain.facet": [1.0, 0.0],  # a has no background: all of its sentences
        "method.plain.sentences": [0.8, 1.0],
        "method.plain.facet": [0.8, 1.0],
        "method.projected.best": [0.8, 1.0],
        "method.plain.whole": [1.0, 0.0],
        "method.plain.by probability": [0.8, 0.0],
        "method.plain.all by probability": [0.8, 1.0],
        "method.with background": [0.0, 1.0],
        "background.with method": [0.6, 0.0],
        "method.of candidate": [0.8, 0.0],
        "sentences of candidate": [np.log(2), 0.0],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(feature[name], values, atol=1e-5, err_msg=name)
    for name in FEATURES:
        missing = name.startswith(("result.plain", "result.projected"))
        assert np.isnan(feature[name]).all() == missing, name
    assert not compared.values[:, -len(WORD_FEATURES) :].any()


def test_no_candidates(index):
    paper = index.paper("s036")
    estimates, compared = open_grader(index).grade(GradedQuery(paper, index.vectors(paper)), [])
    assert estimates.grades.shape == (0, 3)
    assert compared.values.shape == (0, len(FEATURES))


def test_candidates_are_graded_one_by_one_as_together(index):
    grader, paper = open_grader(index), index.paper("s036")
    query = GradedQuery(paper, index.vectors(paper))
    candidates = [index.paper(f"s{number:03}") for number in range(1, 9)]
    together = np.hstack(grader.grade(query, candidates)[0])
    alone = np.vstack([np.hstack(grader.grade(query, [each])[0]) for each in candidates])
    np.testing.assert_allclose(together, alone, atol=1.1e-6)


@pytest.mark.parametrize("facet", Facet)
def test_a_search_is_reranked_by_the_grade_in_its_facet(index, facet):
    paper = index.paper("s036")
    with Pipeline(index, Fused() >> Grades(depth=20, weight=1)) as pipeline:
        hits = pipeline.search(Query(paper, facet), 20)
    place = list(Facet).index(facet)
    candidates = [index.paper(hit.paper_id) for hit in hits]
    estimates, compared = open_grader(index).grade(GradedQuery(paper, index.vectors(paper)), candidates)
    grades = estimates.grades[:, place]
    assert (np.diff(grades) <= 2e-6).all()
    for hit, sentences in zip(hits, compared.places, strict=True):
        positions = list(paper.facet_positions(facet)[0])
        assert hit.driven_by is not None
        best = compared.cosines[place][positions, sentences].max()
        assert hit.driven_by.score == pytest.approx(best, abs=1e-6)


SHAPE = {BACKGROUND: -1, METHOD: 1}


class Counting:
    """The encoder of an index, which remembers what it encoded."""

    def __init__(self, index):
        self.index, self.encoded = index, []

    def encode(self, papers):
        for paper in papers:
            self.encoded.append(paper.paper_id)
            yield self.index.encoder.encode_paper(paper)


@pytest.mark.parametrize("mix", [{}, {"competitors": 2, "same-method-other-problem": 1}])
def test_grading_again_by_the_same_encoder_changes_nothing(index, mix):
    """What a stage encodes itself is what the index has stored; with ``encoded`` it is less than all."""
    paper = index.paper("s036")
    queries = [Query(paper, METHOD), Query.by_facets(paper, SHAPE)]
    variety = Variety(mix)
    if mix:
        queries = [Query.by_facets(paper, variety.weights)]
    stages = [Grades(depth=8, encoder=name, encoded=3) for name in (None, "facet-encoder")]
    found = []
    for stage in stages:
        with Pipeline(index, Fused() >> stage) as pipeline:
            found.append([pipeline.search(query, 8, variety=variety) for query in queries])
            found[-1].append(pipeline.grade(queries[0], found[-1][0]))
    assert found[0] == found[1]


def test_the_first_ranking_of_an_exploration_waits_for_no_encoder(index, monkeypatch):
    request = SearchRequest(Query.by_facets(index.paper("s036"), SHAPE), 5, grades=True)
    found = []
    for name in (None, "facet-encoder"):
        with SearchSession(index, Fused() >> Grades(encoder=name, encoded=3)) as session:
            found.append(list(session.run(request)))
            assert session.rerank_pairs([TopicAspect("s036", facet) for facet in SHAPE], 20) == (
                3 if name else 0
            )
    plain, twice = found
    assert [each.stage for each in plain] == ["first-stage"]
    assert [each.stage for each in twice] == ["first-stage", "reranked"]
    assert [each.is_final for each in twice] == [False, True]
    assert plain[0].hits == twice[0].hits == twice[1].hits
    monkeypatch.setattr(EncodedPapers, "vectors", lambda *_: pytest.fail("encoded"))
    with SearchSession(index, Fused() >> Grades(encoder="facet-encoder")) as session:
        assert session.search(request, rerank=False).hits == plain[0].hits


def test_the_best_are_graded_again_by_other_vectors(index):
    paper, candidates = index.paper("s036"), [index.paper(f"s{number:03}") for number in range(1, 6)]
    grader, encoder = open_grader(index), Counting(index)
    papers = EncodedPapers(encoder)
    before, _ = grader.grade(GradedQuery(paper, index.vectors(paper)), candidates)
    other = TechniqueWords(["fish"], np.ones(1), np.zeros(1))  # by which grades are others
    projections = grader._features._projections
    without = Grader(Features(projections, other, papers.stored), grader._model)
    regrader = Regrader(without, papers, 2)
    best = regrader.best(np.array([0.5, 2.0, 0.0, 2.0, 2.0]))
    assert best.tolist() == [1, 3]  # of equal ones the first
    after = regrader.regraded(paper, candidates, before, best)
    assert sorted(encoder.encoded) == sorted(["s036", "s002", "s004"])
    again, _ = without.grade(GradedQuery(paper, index.vectors(paper)), [candidates[1], candidates[3]])
    for old, new, expected in zip(before, after, again, strict=True):
        np.testing.assert_array_equal(new[best], expected)
        np.testing.assert_array_equal(new[[0, 2, 4]], old[[0, 2, 4]])


def test_vectors_are_computed_once_and_kept_for_a_while(index, monkeypatch):
    monkeypatch.setattr(graded, "KEPT", 2)
    encoder = Counting(index)
    papers = EncodedPapers(encoder)
    first, second, third = (index.paper(f"s{number:03}") for number in (1, 2, 3))
    papers.vectors([first, second, first])
    papers.vectors([first])
    assert encoder.encoded == ["s001", "s002"]
    papers.vectors([third])  # in place of the second, which was asked for before the first
    papers.vectors([first])
    assert encoder.encoded == ["s001", "s002", "s003"]
    stored = papers.stored([second, third])
    assert encoder.encoded == ["s001", "s002", "s003", "s002"]
    expected = stored_vectors(index)([second, third])
    for ours, theirs in zip(stored, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_encoder_without_grades_is_refused(told):
    names = ("all-MiniLM-L6-v2", "no-such-encoder")
    opened = [partial(regrader_opener, Grades(encoder=name), 1) for name in names]
    told("encoders that grade again", messages_of(opened))
