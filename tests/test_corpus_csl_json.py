"""Items of CSL-JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_reading, damaged, mistyped, random_bytes

from qbe.corpus import csl_json
from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.reading import Reading
from qbe.corpus.record import parse_paper
from qbe.errors import CorpusError, RecordError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

DATA = (FORMATS / "zotero.json").read_bytes()
ITEM = {"id": "a", "type": "article", "title": "On fish"}


def read(data: bytes) -> list[Entry]:
    return list(csl_json.read(buffered(data), "library.json", Reading()))


def only(**fields: Any) -> Any:
    [entry] = read(json.dumps([{**ITEM, **fields}]).encode())
    return entry.record


def test_an_item_becomes_a_paper() -> None:
    where, record = read(DATA)[0]
    assert where == "library.json, item 1"
    assert isinstance(record, dict)
    assert parse_paper(record, where, split_sentences) == Paper(
        paper_id="AB12CD34",
        title="Counting Salmon in Gödel Ladders",
        sentences=(
            Sentence("Ladders help salmon, or so we thought."),
            Sentence("We count 5 % more of them."),
        ),
        labelled=False,
        metadata={
            "authors": ["Siobhán O'Neill", "Jan van der Berg Jr.", "Institute for Rivers"],
            "year": 2019,
            "date": "2019-05-07",
            "venue": "Fish Letters",
            "doi": "10.1234/fish.2019_07",
            "url": "https://example.org/fish",
            "ids": {"pmid": "30000001", "pmcid": "PMC6000001"},
        },
        offsets=((0, 38), (39, 65)),
    )


def test_items_without_an_abstract() -> None:
    assert read(DATA)[1:] == [
        Entry(
            "library.json, item 2",
            {
                "paper_id": "leeSwim2018",
                "title": "Learning to Swim",
                "abstract": None,
                "metadata": {
                    "authors": ["Min Lee"],
                    "year": 2018,
                    "date": "2018-01",
                    "ids": {"arxiv": "1801.01234"},
                },
            },
        ),
        Entry(
            "library.json, item 3",
            {"paper_id": "a_lake", "title": "Lakes", "abstract": None, "metadata": {"year": 1999}},
        ),
    ]


def test_the_sample_is_recognized() -> None:
    assert csl_json.recognizes(Head("-", DATA))
    assert csl_json.recognizes(Head("library.json", DATA[:400]))


@pytest.mark.parametrize(
    "data",
    [
        b'{"paper_id": "1", "title": "A", "abstract": "B."}',
        b'[{"paper_id": "1", "title": "A", "abstract": "B.", "type": "article"}]',
        b'[{"DOI": "10.1234/a", "title": ["A"], "type": "journal-article"}]',
        b'[{"id": "https://openalex.org/W1", "display_name": "A", "title": "A", "type": "article"}]',
        b'{"id": "a", "title": "A", "type": "article"}',
        b"[]",
        b"",
    ],
)
def test_other_files_are_not_recognized(data: bytes) -> None:
    assert not csl_json.recognizes(Head("library.json", data))


@pytest.mark.parametrize(
    ("fields", "paper_id"),
    [
        ({"id": "http://zotero.org/groups/7/items/ABCD/"}, "ABCD"),
        ({"id": "https://doi.org/10.1234/A/b"}, "10.1234/a/b"),
        ({"id": " a  b "}, "a_b"),
        ({"id": 0}, "0"),
        ({"id": "7", "citation-key": "lee2019"}, "lee2019"),
        ({"id": None, "DOI": "10.1234/A"}, "10.1234/a"),
    ],
)
def test_the_id_is_short_and_without_white_space(fields: dict[str, Any], paper_id: str) -> None:
    assert only(**fields)["paper_id"] == paper_id


@pytest.mark.parametrize(
    ("issued", "metadata"),
    [
        ({"date-parts": [[2019]]}, {"year": 2019}),
        ({"date-parts": [["2019", "5"]]}, {"year": 2019, "date": "2019-05"}),
        ({"date-parts": [[2019, 5, 1], [2019, 6, 1]]}, {"year": 2019, "date": "2019-05-01"}),
        ({"date-parts": [[2019, 13, 1]]}, {"year": 2019}),
        ({"date-parts": [[None]]}, {}),
        ({"date-parts": [[]], "raw": "2019-05-01"}, {"year": 2019, "date": "2019-05-01"}),
        ({"edtf": "2019-05/2019-07"}, {"year": 2019, "date": "2019-05"}),
        ({"literal": "last May"}, {}),
        (None, {}),
    ],
)
def test_dates_say_what_is_known(issued: Any, metadata: dict[str, Any]) -> None:
    assert only(issued=issued)["metadata"] == metadata


@pytest.mark.parametrize(
    ("fields", "message", "reason"),
    [
        ({"title": None}, "expected a title, found none; add it or remove the item", "no title"),
        ({"id": ""}, "expected an id, found none; add it or remove the item", "no paper_id"),
        (
            {"id": [1]},
            "expected a string or a number as id, found list; mend or remove the record",
            "not a record of this format",
        ),
        (
            {"title": ["A"]},
            "expected a string as title, found list; mend or remove the record",
            "not a record of this format",
        ),
        (
            {"author": [7]},
            "expected objects as author, found int; mend or remove the record",
            "not a record of this format",
        ),
        (
            {"issued": 2019},
            "expected an object as issued, found int; mend or remove the record",
            "not a record of this format",
        ),
    ],
)
def test_a_defect_concerns_one_item(fields: dict[str, Any], message: str, reason: str) -> None:
    first, second = read(json.dumps([{**ITEM, **fields}, ITEM]).encode())
    assert isinstance(first.record, RecordError)
    assert str(first.record) == f"library.json, item 1: {message}"
    assert first.record.reason == reason
    assert second.record["paper_id"] == "a"


def test_an_item_that_is_no_object() -> None:
    first, second = read(b'["a", {"id": 1, "title": "A"}]')
    assert str(first.record) == (
        "library.json, item 1: expected a JSON object, found a string; write one paper an object"
    )
    assert second.record["paper_id"] == "1"


def test_a_file_that_is_cut_ends_the_reading() -> None:
    entries = csl_json.read(buffered(DATA[:-20]), "library.json", Reading())
    assert [next(entries).where, next(entries).where] == ["library.json, item 1", "library.json, item 2"]
    with pytest.raises(CorpusError, match=r"^library\.json, item 3: expected .*malformed JSON"):
        next(entries)


@settings(max_examples=1000, deadline=None)
@given(random_bytes(b'[{"id": 1, "title": "A'))
def test_random_bytes_are_items_or_errors(data: bytes) -> None:
    check(data)


@settings(max_examples=1000, deadline=None)
@given(damaged(DATA))
def test_a_damaged_file_is_items_and_errors(data: bytes) -> None:
    check(data)


@settings(max_examples=1000, deadline=None)
@given(mistyped(DATA))
def test_values_of_other_types_are_items_or_errors(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    for record in check_reading(csl_json.read, data, "library.json, item "):
        assert isinstance(record["paper_id"], str)
