"""Papers in JSON whose records have other names than qbe's, or stand in arrays and answers."""

import json
from typing import Any

import pytest
from support.formats import buffered

from qbe.corpus import jsonl
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading
from qbe.errors import CorpusError, RecordError

OWN = {"paper_id": "1", "title": "On fish", "abstract": "Fish swim."}
PLAIN = {"id": "x1", "title": "On fish", "abstract": "Fish swim."}
PAPER = {"paper_id": "x1", "title": "On fish", "abstract": "Fish swim.", "metadata": {}}


def read(data: bytes | str, columns: dict[str, str] | None = None) -> list[Entry]:
    return list(jsonl.read_entries(buffered(data), "papers.json", Reading(columns=columns or {})))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([OWN]),
        json.dumps([OWN], indent=1),
        json.dumps(OWN) + "\n",
        json.dumps(OWN, indent=1),
        json.dumps({"papers": [OWN]}),
        json.dumps({"total": 1, "next": None, "data": [OWN], "links": {}}, indent=2),
        json.dumps([OWN])[:-1] + ",]",
    ],
)
def test_own_records_wherever_they_stand(text: str) -> None:
    assert jsonl.recognizes(Head("papers.json", text.encode()))
    assert [entry.record for entry in read(text)] == [OWN]


@pytest.mark.parametrize(
    ("change", "paper"),
    [
        ({}, {}),
        ({"id": 7}, {"paper_id": 7}),
        ({"id": 7.0}, {"paper_id": 7}),
        ({"id": None, "doc_id": "d"}, {"paper_id": None}),
        ({"year": "2019", "authors": ["Ann Lee"]}, {"metadata": {"year": 2019, "authors": ["Ann Lee"]}}),
        ({"year": 2019.0}, {"metadata": {"year": 2019}}),
        ({"authors": [{"first_name": "Ann", "last_name": "Lee"}]}, {"metadata": {"authors": ["Ann Lee"]}}),
        (
            {"journal": {"title": "Nets"}, "doi": "10.1000/A"},
            {"metadata": {"venue": "Nets", "doi": "10.1000/a"}},
        ),
        ({"keywords": ["nets", "rods"]}, {"metadata": {"tags": ["nets", "rods"]}}),
        ({"metadata": {"year": 2020, "mine": 1}, "year": 2019}, {"metadata": {"year": 2020, "mine": 1}}),
        ({"abstract": None}, {"abstract": None}),
        ({"abstract": ["One.", "Two."]}, {"abstract": ["One.", "Two."]}),
        ({"title": "On <i>fish</i>"}, {}),
    ],
)
def test_records_with_usual_names(change: dict[str, Any], paper: dict[str, Any]) -> None:
    [entry] = read(json.dumps(PLAIN | change))
    assert entry.record == PAPER | paper


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (("_id", "title", "text"), {}),
        (("doc_id", "title", "abstract"), {}),
        (("corpus_id", "Title", "paperAbstract"), {}),
        (("lens_id", "title", "abstract"), {}),
        (("nr", "name", "words"), {"id": "nr", "title": "name", "abstract": "words"}),
        (("paper_id", "title", "words"), {"abstract": "words"}),
    ],
)
def test_other_names(names: tuple[str, str, str], named: dict[str, str]) -> None:
    values = dict(zip(names, ("x1", "On fish", "Fish swim."), strict=True))
    for text in json.dumps(values), json.dumps([values], indent=1):
        assert [entry.record for entry in read(text, named)] == [PAPER]


def test_sentences_keep_their_labels() -> None:
    labelled = {"abstract": ["One.", "Two."], "pred_labels": ["method_label", "result_label"]}
    [entry] = read(json.dumps({"id": "x1", "title": "On fish", **labelled}))
    assert entry.record == PAPER | labelled


def test_a_name_that_no_record_has_is_an_error_at_the_end() -> None:
    with pytest.raises(CorpusError, match="expected records with 'summry', found none; check `columns`"):
        read(json.dumps(PLAIN), {"abstract": "summry"})


def test_records_may_lack_fields_that_others_have() -> None:
    lines = "\n".join(map(json.dumps, (PLAIN, {"id": "x2", "title": "B"}, {"id": "x3"})))
    first, second, third = read(lines)
    assert (first.record, second.record["abstract"]) == (PAPER, None)
    assert isinstance(third.record, RecordError) and third.record.reason == "no title"


@pytest.mark.parametrize(
    "text",
    [
        '{"7": {"title": "A", "abstract": "B."}, "8": 3}',
        '{"7": {"title": "A", "abstract": "B."}, "8": {"a" 1}}',
    ],
)
def test_an_object_of_papers_with_one_that_is_none(text: str) -> None:
    first, second = read(text)
    assert first.record == {"paper_id": "7", "title": "A", "abstract": "B."}
    assert second.where == "papers.json, item 2" and isinstance(second.record, RecordError)


def test_a_record_that_begins_with_an_object_is_no_object_of_papers() -> None:
    [entry] = read(json.dumps({"ids": {"a": 1}, **PLAIN}))
    assert entry.record == PAPER
