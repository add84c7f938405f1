"""Papers from a title and an abstract as plain text."""

import pytest

from qbe.errors import CorpusError
from qbe.query import Query
from qbe.text.split import paper_from_text
from qbe.types import Paper, Sentence


def test_an_abstract_is_split_into_sentences():
    paper = paper_from_text(" On\tfish ", "Fish swim. We count them,\ne.g. cod.")
    sentences = (Sentence("Fish swim."), Sentence("We count them, e.g. cod."))
    assert paper == Paper("sha-18d06b14ce4412fd", "On fish", sentences, offsets=((0, 10), (11, 35)))
    assert paper_from_text("", "One.", paper_id="7").paper_id == "7"


def test_papers_without_an_id_are_told_apart_by_their_texts():
    texts = [
        ("On fish", "Fish swim."),
        ("On fish", "Fish sleep."),
        ("", "Fish swim."),
        (" On  fish", "Fish swim."),
    ]
    papers = [paper_from_text(*each) for each in texts]
    assert len({paper.paper_id for paper in papers}) == 3
    assert len({Query(paper).query_id for paper in papers}) == 3
    assert papers[0].paper_id == papers[3].paper_id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "One."), "expected `title` of type str, found NoneType"),
        (("T", ["One."]), "expected `abstract` of type str, found list"),
        (("T", b"One."), "expected `abstract` of type str, found bytes"),
    ],
)
def test_other_types_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        paper_from_text(*arguments)
    with pytest.raises(TypeError, match="expected `paper_id` of type str, found int"):
        paper_from_text("T", "One.", paper_id=7)


@pytest.mark.parametrize(
    ("abstract", "paper_id", "message"),
    [
        ("", "query", "^paper query: expected an abstract, found an empty one"),
        (" \n", "query", "^paper query: expected an abstract, found an empty one"),
        ("One\0.", "7", "^paper 7: expected text, found a NUL character in the abstract"),
        ("One.", "a b", "^paper a b: expected a paper_id without white space"),
        ("One.", "a\nb", "^paper: expected a paper_id without white space"),
        ("One.", "", "expected a string or whole number as paper_id"),
    ],
)
def test_invalid_texts_are_refused(abstract, paper_id, message):
    with pytest.raises(CorpusError, match=message) as caught:
        paper_from_text("T", abstract, paper_id=paper_id)
    assert "\n" not in str(caught.value)
