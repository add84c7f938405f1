"""Features of candidates worked by hand, and the reranker by grades."""

import numpy as np
import pytest

from qbe.corpus.records import paper_from_text
from qbe.models.encoding import PaperVectors
from qbe.models.words import NAMES as WORD_FEATURES
from qbe.models.words import TechniqueWords
from qbe.query import Aspect, Query
from qbe.search.grading import FEATURES, NOTHING_FITS, Features, GradedQuery, open_grader
from qbe.search.pipeline import Pipeline
from qbe.search.projections import FacetProjection, StoredPapers
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Fused, Grades
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.slow

BACKGROUND, METHOD, RESULT = Facet


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


@pytest.mark.parametrize("facet", Facet)
def test_a_search_is_reranked_by_the_grade_in_its_facet(graded, facet):
    paper = graded.paper("s036")
    with Pipeline(graded, Fused() >> Grades(depth=20, weight=1)) as pipeline:
        hits = pipeline.search(Query(paper, facet), 20)
    place = list(Facet).index(facet)
    candidates = [graded.paper(hit.paper_id) for hit in hits]
    estimates, compared = open_grader(graded).grade(GradedQuery(paper, graded.vectors(paper)), candidates)
    grades = estimates.grades[:, place]
    assert (np.diff(grades) <= 2e-6).all()
    for hit, sentences in zip(hits, compared.places, strict=True):
        positions = list(paper.facet_positions(facet)[0])
        assert hit.driven_by is not None
        best = compared.cosines[place][positions, sentences].max()
        assert hit.driven_by.score == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["protein language models", "We track the eyes of users in virtual reality."]
)
def test_a_phrase_is_not_graded_as_near_identical(graded, text):
    """Of features that no training has seen would come grades of 3 for one shared word."""
    query = Query(paper_from_text("", text), METHOD)
    with Pipeline(graded, Fused() >> Grades()) as pipeline:
        hits = pipeline.search(query, 10, grades=True)
    assert max(max(hit.grades.values()) for hit in hits) < 2


def test_a_search_says_where_nothing_fits(graded):
    def notes(paper: Paper) -> str:
        with SearchSession(graded, Fused() >> Grades()) as session:
            ranking = session.search(SearchRequest(Query(paper, METHOD), grades=True))
        best = max(hit.grades["method"] for hit in ranking.hits[:5])
        assert (best <= NOTHING_FITS) == ("no paper is likely" in " ".join(ranking.notes))
        return " ".join(ranking.notes)

    assert "no paper is likely" not in notes(graded.paper("s036"))
    soil = (
        "We sampled soil in forests. We counted beetles by hand for three years. Their number fell by half."
    )
    assert "these are the nearest (best grade: method 0." in notes(paper_from_text("Beetles", soil))


def test_grades_by_several_papers_order_a_small_pool_as_the_whole_index(graded):
    query = Query.of(*(Aspect(graded.paper(name)) for name in ("s001", "s036", "s099")))
    with Pipeline(graded, Fused() >> Grades()) as pipeline:
        whole = [hit.paper_id for hit in pipeline.search(query, k=200)]
        for pool in (whole[1::20], whole[-5:]):
            assert [hit.paper_id for hit in pipeline.search(query, pool=sorted(pool))] == pool
