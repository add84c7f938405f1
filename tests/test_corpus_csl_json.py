"""Items of CSL-JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_reading, damaged, mistyped, random_bytes

from qbe.corpus import csl_json
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading
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
                    "key": "leeSwim2018",
                },
            },
        ),
        Entry(
            "library.json, item 3",
            {"paper_id": "a lake", "title": "Lakes", "abstract": None, "metadata": {"year": 1999}},
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
        b'[{"id": "a", "title": "A", "type": "article", "authors": ["B"], "year": 2019}]',
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
        ({"id": " a b "}, "a b"),
        ({"id": 7.0}, "7"),
        ({"id": 0}, "0"),
        ({"id": "7", "citation-key": "lee2019"}, "lee2019"),
        ({"id": None, "DOI": "10.1234/A"}, None),
        ({"id": ""}, None),
    ],
)
def test_the_id_is_the_key_or_short(fields: dict[str, Any], paper_id: str | None) -> None:
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
        ([{"year": "2019", "month": "5"}], {"year": 2019, "date": "2019-05"}),
        ("2019-05-01", {"year": 2019, "date": "2019-05-01"}),
        ({"raw": "1988-01-01T00:00:01Z"}, {"year": 1988, "date": "1988-01-01"}),
        ({"date-parts": [["", ""]], "literal": "c2017"}, {"year": 2017}),
        (2019, {"year": 2019}),
        (None, {}),
    ],
)
def test_dates_say_what_is_known(issued: Any, metadata: dict[str, Any]) -> None:
    assert only(issued=issued)["metadata"] == metadata


@pytest.mark.parametrize(
    ("fields", "message", "reason"),
    [
        ({"title": None}, "expected a title, found none; add it or remove the record", "no title"),
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
    ],
)
def test_a_defect_concerns_one_item(fields: dict[str, Any], message: str, reason: str) -> None:
    first, second = read(json.dumps([{**ITEM, **fields}, ITEM]).encode())
    assert isinstance(first.record, RecordError)
    assert str(first.record) == f"library.json, item 1: {message}"
    assert first.record.reason == reason
    assert second.record["paper_id"] == "a"


OWN = {"id": "a", "title": "On fish", "issued": {"raw": "2019"}}
ZOTERO = {
    "itemType": "journalArticle",
    "title": "On fish",
    "creators": [
        {"creatorType": "editor", "firstName": "Eva", "lastName": "Berg"},
        {"creatorType": "author", "firstName": "Ann", "lastName": "Lee"},
        {"creatorType": "author", "name": "Fish Group"},
    ],
    "abstractNote": "Fish swim.",
    "publicationTitle": "Fish Letters",
    "date": "May 7, 2019",
    "DOI": "10.1234/A",
    "url": "https://example.org",
    "extra": "PMID: 7\nCitation Key: lee2019",
    "tags": [{"tag": "nets", "type": 1}, {"tag": "to read"}],
    "key": "AB12",
}
AS_PAPER = {
    "paper_id": "lee2019",
    "title": "On fish",
    "abstract": "Fish swim.",
    "metadata": {
        "authors": ["Ann Lee", "Fish Group"],
        "year": 2019,
        "date": "2019-05-07",
        "venue": "Fish Letters",
        "doi": "10.1234/a",
        "url": "https://example.org",
        "key": "lee2019",
        "tags": ["nets", "to read"],
    },
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"items": [OWN]}, [("a", "On fish")]),
        (OWN, [("a", "On fish")]),
        ([OWN | {"type": None}, OWN | {"type": "podcast", "id": "b"}], [("a", "On fish"), ("b", "On fish")]),
        ([OWN | {"id": "x", "citation-key": "lee"}], [("lee", "On fish")]),
        ([OWN | {"note": "Citation Key: lee"}], [("lee", "On fish")]),
        ({"config": {}, "collections": {"C": {"items": [1]}}, "items": [ZOTERO]}, [("lee2019", "On fish")]),
        ([{"key": "AB12", "version": 3, "library": {}, "data": ZOTERO}], [("lee2019", "On fish")]),
        ([ZOTERO | {"extra": ""}], [("AB12", "On fish")]),
        ([ZOTERO, {"itemType": "attachment", "title": "PDF"}], [("lee2019", "On fish"), "not a paper"]),
        ([OWN, {**OWN, "title": " "}], [("a", "On fish"), "no title"]),
        ([OWN, None, OWN | {"id": "b"}], [("a", "On fish"), "null", ("b", "On fish")]),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_shapes_that_tools_write(content: Any, expected: list[Any], indent: int | None) -> None:
    data = json.dumps(content, indent=indent).encode()
    assert csl_json.recognizes(Head("library.json", data))
    records = [entry.record for entry in read(data)]
    assert [
        each.reason if isinstance(each, RecordError) else (each["paper_id"], each["title"])
        for each in records
    ] == expected


def test_an_item_of_zotero_has_all_that_a_paper_has() -> None:
    assert read(json.dumps([{"data": ZOTERO}]).encode())[0].record == AS_PAPER


@pytest.mark.parametrize(
    ("fields", "metadata"),
    [
        ({"keyword": "nets, rods; nets"}, {"tags": ["nets", "rods"]}),
        ({"keyword": ["nets", 7, "a, b"]}, {"tags": ["nets", "a, b"]}),
        ({"citation-key": "lee"}, {"key": "lee"}),
        (
            {"author": [{"family": "Hernández Núñez", "given": "José"}]},
            {"authors": ["Hernández Núñez, José"]},
        ),
        (
            {"author": [{"family": "Beethoven", "dropping-particle": "van", "given": "L."}]},
            {"authors": ["L. van Beethoven"]},
        ),
        ({"PMID": 7, "PMCID": "PMC1"}, {"ids": {"pmid": "7", "pmcid": "PMC1"}}),
    ],
)
def test_metadata(fields: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert only(**fields)["metadata"] == metadata


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
    for record in check_reading(csl_json.read, data, "library.json, "):
        assert isinstance(record["paper_id"], str | None)
