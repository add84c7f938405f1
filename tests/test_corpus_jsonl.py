"""Papers in JSON whose records have other names than qbe's, or stand in arrays and answers."""

import json

import pytest
from support.formats import buffered

from qbe.corpus import json_formats
from qbe.corpus.reading import FORMATS
from qbe.corpus.records import Entry, Reading
from qbe.corpus.streams import Head
from qbe.errors import CorpusError, RecordError

OWN = {"paper_id": "1", "title": "On fish", "abstract": "Fish swim."}
PLAIN = {"id": "x1", "title": "On fish", "abstract": "Fish swim."}
PAPER = {"paper_id": "x1", "title": "On fish", "abstract": "Fish swim.", "metadata": {}}


def read(data: bytes | str, columns: dict[str, str] | None = None) -> list[Entry]:
    return list(json_formats.read_entries(buffered(data), "papers.json", Reading(columns=columns or {})))


@pytest.mark.parametrize(
    "text",
    [
        *(json.dumps([OWN]), json.dumps([OWN], indent=1), json.dumps(OWN) + "\n", json.dumps(OWN, indent=1)),
        json.dumps({"papers": [OWN]}),
        json.dumps({"total": 1, "next": None, "data": [OWN], "links": {}}, indent=2),
    ],
)
def test_own_records_wherever_they_stand(text: str) -> None:
    assert FORMATS["jsonl"].recognizes(Head("papers.json", text.encode()))
    assert [entry.record for entry in read(text)] == [OWN]


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (("_id", "title", "text"), {}),
        (("corpus_id", "Title", "paperAbstract"), {}),
        (("nr", "name", "words"), {"id": "nr", "title": "name", "abstract": "words"}),
        (("paper_id", "title", "words"), {"abstract": "words"}),
    ],
)
def test_other_names(names: tuple[str, str, str], named: dict[str, str]) -> None:
    values = dict(zip(names, ("x1", "On fish", "Fish swim."), strict=True))
    for text in json.dumps(values), json.dumps([values], indent=1):
        assert [entry.record for entry in read(text, named)] == [PAPER]


def test_own_records_keep_what_they_tell_beside_their_metadata() -> None:
    record = {**OWN, "year": 2019, "authors": ["Lee, Ann"], "venue": "V", "metadata": {"venue": "W"}}
    (entry,) = read(json.dumps(record))
    assert entry.record == {**record, "metadata": {"authors": ["Ann Lee"], "year": 2019, "venue": "W"}}
    untitled = {**OWN, "title": "", "abstract": ["One.", None], "year": 2019, "metadata": {"year": None}}
    (entry,) = read(json.dumps(untitled))  # what is wrong with texts is told where they are parsed
    assert entry.record == {**untitled, "metadata": {"year": 2019}}
    (entry,) = read(json.dumps({**OWN, "year": 2019, "metadata": [1]}))
    assert entry.record["metadata"] == [1]


def test_a_name_that_no_record_has_is_an_error_at_the_end() -> None:
    with pytest.raises(CorpusError, match="expected records with 'summry', found none; check `columns`"):
        read(json.dumps(PLAIN), {"abstract": "summry"})


def test_records_may_lack_fields_that_others_have() -> None:
    first, second, third = read("\n".join(map(json.dumps, (PLAIN, {"id": "x2", "title": "B"}, {"id": "x3"}))))
    assert (first.record, second.record["abstract"]) == (PAPER, None)
    assert isinstance(third.record, RecordError) and third.record.reason == "no title"


def test_an_object_of_papers_with_one_that_is_none() -> None:
    first, second = read('{"7": {"title": "A", "abstract": "B."}, "8": 3}')
    assert first.record == {"paper_id": "7", "title": "A", "abstract": "B."}
    assert second.where == "papers.json, item 2" and isinstance(second.record, RecordError)


def test_a_record_that_begins_with_an_object_is_no_object_of_papers() -> None:
    for first in ({"ids": {"a": 1}}, {"metadata": {}}):
        [entry] = read(json.dumps(first | PLAIN))
        assert entry.record == PAPER
