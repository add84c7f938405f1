"""What people read of a sentence, and what they correct it to: an aim says what is done, and how."""

import pytest

from qbe.errors import UsageError
from qbe.search.present import describe, label_of
from qbe.search.request import SearchForm
from qbe.search.writers import sentence_records
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

AIM = Sentence("We propose X for Y.", Facet.BACKGROUND, FacetProbabilities(0.2, 0.5, 0.3, 0.0, 0.0))
SENTENCES = (Sentence("Y is hard.", Facet.BACKGROUND), AIM, Sentence("X is fast.", Facet.RESULT))
PAPER = Paper("1", "On Y", SENTENCES, labelled=True)


def test_an_aim_is_told_from_what_is_known():
    assert [record["label"] for record in sentence_records(PAPER)] == ["background", "aim", "result"]
    assert [record["facet"] for record in sentence_records(PAPER)] == ["background", "background", "result"]
    assert label_of(PAPER, 1, None) == "aim"
    assert label_of(PAPER, 1, Facet.RESULT) == "(labelled aim)"
    assert describe(PAPER, 1, Facet.METHOD) == "aim 0.70, best guess for method 0.30"


@pytest.mark.parametrize("label", ["background", "aim", "method", "result", "other"])
def test_a_sentence_is_corrected_to_any_label(label):
    assert AIM.labelled(label).label == label


def test_an_aim_is_the_best_guess_for_the_method_where_nothing_else_says_how():
    plain = Sentence("We propose X for Y.", Facet.BACKGROUND)
    paper = Paper("1", "On Y", (SENTENCES[0], plain.labelled("aim")), labelled=True)
    assert paper.facet_positions(Facet.METHOD) == ((1,), True)


def test_a_request_corrects_labels(tiny_index):
    from qbe.index.index import Index

    form = SearchForm(paper_ids=["s036"], labels=["1:aim"])
    with Index(tiny_index) as index:
        paper = form.request(index).query.aspects[0].paper
    assert paper.sentences[1].label == "aim"
    for wrong in ("1:aims", "-1:aim", "aim"):
        with pytest.raises(UsageError):
            SearchForm(paper_ids=["s036"], labels=[wrong])
