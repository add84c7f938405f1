"""Items of CSL-JSON."""

import json
from typing import Any

import pytest
from support.formats import buffered

from qbe.corpus import csl_json
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading
from qbe.errors import RecordError

ITEM = {"id": "a", "type": "article", "title": "On fish"}


def read(data: bytes) -> list[Entry]:
    return list(csl_json.read(buffered(data), "library.json", Reading()))


def only(**fields: Any) -> Any:
    [entry] = read(json.dumps([{**ITEM, **fields}]).encode())
    return entry.record


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
