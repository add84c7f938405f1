"""Facets from probabilities, and which sentences stand for a facet."""

import pytest

from qbe.types import Facet, FacetProbabilities, Paper, Sentence

METHOD = FacetProbabilities(0.125, 0.125, 0.5, 0.125, 0.125)
OTHER = FacetProbabilities(0.125, 0.125, 0.0, 0.25, 0.5)


def paper(*sentences: Sentence) -> Paper:
    return Paper("p", "T", sentences, labelled=True)


def predicted(*probabilities: FacetProbabilities) -> Paper:
    return paper(*(Sentence("A.", found.facet, found) for found in probabilities))


@pytest.mark.parametrize(
    ("probabilities", "label", "facet"),
    [
        ((0.5, 0.25, 0.25, 0.0, 0.0), "background", Facet.BACKGROUND),
        ((0.125, 0.5, 0.25, 0.125, 0.0), "objective", Facet.BACKGROUND),
        # Background and objective together beat method, which beats each of them.
        ((0.25, 0.3125, 0.4375, 0.0, 0.0), "objective", Facet.BACKGROUND),
        ((0.25, 0.25, 0.25, 0.25, 0.0), "background", Facet.BACKGROUND),
        ((0.25, 0.25, 0.5, 0.0, 0.0), "background", Facet.BACKGROUND),
        ((0.0, 0.0, 0.5, 0.5, 0.0), "method", Facet.METHOD),
        ((0.0, 0.0, 0.25, 0.5, 0.25), "result", Facet.RESULT),
        ((0.0, 0.25, 0.0, 0.25, 0.5), "other", None),
        ((0.0, 0.0, 0.0, 0.5, 0.5), "result", Facet.RESULT),
    ],
)
def test_the_label_is_chosen_facet_first(probabilities, label, facet):
    found = FacetProbabilities(*probabilities)
    assert (found.label, found.facet) == (label, facet)


def test_a_given_label_is_not_a_prediction():
    assert not paper(Sentence("A.", Facet.METHOD), Sentence("B.")).predicted
    assert predicted(OTHER, METHOD).predicted


def test_positions_of_a_facet_that_is_there():
    labels = (METHOD, OTHER, METHOD)
    assert predicted(*labels).facet_positions(Facet.METHOD) == ((0, 2), False)
    given = paper(Sentence("A.", Facet.RESULT), Sentence("B.", Facet.METHOD))
    assert given.facet_positions(Facet.METHOD) == ((1,), False)


def test_a_predicted_paper_without_the_facet_has_a_best_guess():
    found = predicted(METHOD, OTHER, OTHER)
    assert found.facet_positions(Facet.RESULT) == ((1,), True)  # the first of equals
    assert found.facet_positions(Facet.BACKGROUND) == ((0,), True)
    never = FacetProbabilities(0.5, 0.5, 0.0, 0.0, 0.0)
    assert predicted(never, never).facet_positions(Facet.METHOD) == ((0,), True)


def test_a_paper_with_given_labels_has_none():
    given = paper(Sentence("A.", Facet.METHOD), Sentence("B."))
    assert given.facet_positions(Facet.RESULT) == ((), False)
