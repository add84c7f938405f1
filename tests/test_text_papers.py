"""Papers from a title and an abstract as plain text."""

from functools import partial

from support.messages import messages_of

from qbe.corpus.sentences import paper_from_text
from qbe.errors import CorpusError
from qbe.query import Query
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


WRONG = [
    ("", "query"),
    (" \n", "query"),
    ("One\0.", "7"),
    *(("One.", paper_id) for paper_id in ("a b", "a\nb", "", 7)),
    *((abstract, None) for abstract in (["One."], b"One.")),
]


def test_other_types_and_invalid_texts_are_refused(told):
    actions = [partial(paper_from_text, "T", abstract, paper_id=paper_id) for abstract, paper_id in WRONG]
    actions.append(partial(paper_from_text, None, "One."))
    told("papers of texts", messages_of(actions, (CorpusError, TypeError)))
