"""Works and items of databases and reference managers in JSON, and the ids of the ACL Anthology."""

import json
import time
from typing import Any

import pytest
from support.formats import FORMATS as FILES
from support.formats import buffered

from qbe.corpus.acl_anthology import anthology_id
from qbe.corpus.formats import FORMATS
from qbe.corpus.head import HEAD_BYTES, Head
from qbe.corpus.reading import Entry, Reading
from qbe.errors import RecordError

URL = {"url": "https://openalex.org/W7"}
ODD_DOI = "10.5555/(sici)1097-0258(2021)40:1<16::aid-net9>3.0.co;2-2"
BASES: dict[str, dict[str, Any]] = {
    "crossref": {"DOI": "10.5555/7", "title": ["On fish"]},
    "openalex": {"id": URL["url"], "title": "On fish"},
    "csl-json": {"id": "a", "type": "article", "title": "On fish"},
}


def read(form: str, content: Any, indent: int | None = None, **reading: Any) -> list[Entry]:
    data = content if isinstance(content, bytes) else json.dumps(content, indent=indent).encode()
    return list(FORMATS[form].read(buffered(data), "garbage", Reading(**reading)))


def results(entries: list[Entry]) -> list[Any]:
    """Id and title of each record, or the reason for which it is none."""
    records = [entry.record for entry in entries]
    return [
        each.reason if isinstance(each, RecordError) else (each["paper_id"], each["title"])
        for each in records
    ]


def record(form: str, change: dict[str, Any]) -> Any:
    """The only record of a file."""
    [entry] = read(form, BASES[form] | change if form != "csl-json" else [BASES[form] | change])
    return entry.record


@pytest.mark.parametrize(
    ("form", "change", "expected"),
    [
        (
            "crossref",
            {"abstract": "<jats:title>Abstract</jats:title><jats:p>Fish swim.</jats:p>"},
            {"abstract": "Fish swim."},
        ),
        ("crossref", {"abstract": "<jats:p>Fish swim.</jats:p>"}, {"abstract": "Fish swim."}),
        ("crossref", {"abstract": "Abstract Background: fish swim."}, {"abstract": "Background: fish swim."}),
        (
            "crossref",
            {"abstract": "<jats:title>Methods:</jats:title> <jats:p>We count.</jats:p>"},
            {"abstract": "Methods: We count."},
        ),
        (
            "crossref",
            {"abstract": "<jats:title> </jats:title><jats:p>We count.</jats:p>"},
            {"abstract": "We count."},
        ),
        (
            "crossref",
            {"abstract": "<jats:tex-math>$n$</jats:tex-math> <mml:math><mml:mi>n</mml:mi></mml:math> fish"},
            {"abstract": "$n$ fish"},
        ),
        (
            "crossref",
            {"abstract": "<jats:p>Of <mml:math><mml:mi>n</mml:mi></mml:math> fish</jats:p>"},
            {"abstract": "Of n fish"},
        ),
        ("crossref", {"abstract": "<jats:title>Abstract</jats:title>"}, {"abstract": None}),
        ("crossref", {"title": ["<scp>DNA</scp> of fish"]}, {"title": "DNA of fish"}),
        ("crossref", {"title": ["Fish"], "subtitle": ["A study"]}, {"title": "Fish: A study"}),
        ("crossref", {"title": ["Fish:"], "subtitle": [": A study"]}, {"title": "Fish: A study"}),
        ("crossref", {"title": ["Fish: a study"], "subtitle": ["A Study"]}, {"title": "Fish: a study"}),
        ("crossref", {"title": ["", "Fish"]}, {"title": "Fish"}),
        ("crossref", {"title": [], "subtitle": ["A study"]}, {"title": "A study"}),
        ("crossref", {"title": ["Fish\n                    <i>sp.</i>\n  swim"]}, {"title": "Fish sp. swim"}),
        ("crossref", {"title": ["&lt;i&gt;Fish&lt;/i&gt; &amp;amp; chips"]}, {"title": "Fish & chips"}),
        ("crossref", {"DOI": None}, {"paper_id": None}),
        (
            "crossref",
            {"abstract": "<jats:p>&lt;p&gt;Fish swim.&lt;/p&gt;</jats:p>"},
            {"abstract": "Fish swim."},
        ),
        ("openalex", {"title": None, "display_name": "On <i>fish</i>"}, {"title": "On fish"}),
        ("openalex", {"abstract": "Fish swim."}, {"abstract": "Fish swim."}),
        ("openalex", {"abstract_inverted_index": {}}, {"abstract": None}),
        ("openalex", {"abstract_inverted_index": {"swim.": [1], "Fish": [0]}}, {"abstract": "Fish swim."}),
        ("csl-json", {"id": "http://zotero.org/groups/7/items/ABCD/"}, {"paper_id": "ABCD"}),
        ("csl-json", {"id": "https://doi.org/10.1234/A/b"}, {"paper_id": "10.1234/a/b"}),
        ("csl-json", {"id": " a b "}, {"paper_id": "a b"}),
        ("csl-json", {"id": 7.0}, {"paper_id": "7"}),
        ("csl-json", {"id": 0}, {"paper_id": "0"}),
        ("csl-json", {"id": "7", "citation-key": "lee2019"}, {"paper_id": "lee2019"}),
        ("csl-json", {"id": None, "DOI": "10.1234/A"}, {"paper_id": None}),
        ("csl-json", {"id": ""}, {"paper_id": None}),
    ],
)
def test_texts_and_ids(form, change, expected):
    found = record(form, change)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("form", "change", "metadata"),
    [
        ("openalex", {"ids": {"doi": "https://doi.org/10.5555/A"}}, {"doi": "10.5555/a"}),
        ("openalex", {"doi": None, "ids": None}, {}),
        (
            "openalex",
            {"keywords": [{"id": "x", "display_name": "Nets"}, {"display_name": "Nets"}]},
            {"tags": ["Nets"]},
        ),
        ("openalex", {"publication_year": "2019"}, {"year": 2019}),
        ("openalex", {"publication_year": 2019.0}, {"year": 2019}),
        ("openalex", {"primary_location": {"source": None}}, {}),
        ("openalex", {"authorships": [{"author": {"display_name": None}}]}, {}),
        (
            "openalex",
            {"topics": None, "concepts": [{"level": 0, "display_name": "Fish"}]},
            {"categories": ["Fish"]},
        ),
        ("csl-json", {"issued": {"date-parts": [[2019]]}}, {"year": 2019}),
        ("csl-json", {"issued": {"date-parts": [["2019", "5"]]}}, {"year": 2019, "date": "2019-05"}),
        (
            "csl-json",
            {"issued": {"date-parts": [[2019, 5, 1], [2019, 6, 1]]}},
            {"year": 2019, "date": "2019-05-01"},
        ),
        ("csl-json", {"issued": {"date-parts": [[2019, 13, 1]]}}, {"year": 2019}),
        ("csl-json", {"issued": {"date-parts": [[None]]}}, {}),
        (
            "csl-json",
            {"issued": {"date-parts": [[]], "raw": "2019-05-01"}},
            {"year": 2019, "date": "2019-05-01"},
        ),
        ("csl-json", {"issued": {"edtf": "2019-05/2019-07"}}, {"year": 2019, "date": "2019-05"}),
        ("csl-json", {"issued": {"literal": "last May"}}, {}),
        ("csl-json", {"issued": [{"year": "2019", "month": "5"}]}, {"year": 2019, "date": "2019-05"}),
        ("csl-json", {"issued": "2019-05-01"}, {"year": 2019, "date": "2019-05-01"}),
        ("csl-json", {"issued": {"raw": "1988-01-01T00:00:01Z"}}, {"year": 1988, "date": "1988-01-01"}),
        ("csl-json", {"issued": {"date-parts": [["", ""]], "literal": "c2017"}}, {"year": 2017}),
        ("csl-json", {"issued": 2019}, {"year": 2019}),
        ("csl-json", {"issued": None}, {}),
        ("csl-json", {"keyword": "nets, rods; nets"}, {"tags": ["nets", "rods"]}),
        ("csl-json", {"keyword": ["nets", 7, "a, b"]}, {"tags": ["nets", "a, b"]}),
        ("csl-json", {"citation-key": "lee"}, {"key": "lee"}),
        (
            "csl-json",
            {"author": [{"family": "Hernández Núñez", "given": "José"}]},
            {"authors": ["Hernández Núñez, José"]},
        ),
        (
            "csl-json",
            {"author": [{"family": "Beethoven", "dropping-particle": "van", "given": "L."}]},
            {"authors": ["L. van Beethoven"]},
        ),
        ("csl-json", {"PMID": 7, "PMCID": "PMC1"}, {"ids": {"pmid": "7", "pmcid": "PMC1"}}),
    ],
)
def test_metadata(form, change, metadata):
    assert record(form, change)["metadata"] == metadata | (URL if form == "openalex" else {})


@pytest.mark.parametrize(
    ("form", "categories", "kept"),
    [
        ("crossref", ("Aquatic*",), [ODD_DOI]),
        ("openalex", ("Computer *",), ["W4100000001"]),
        ("semantic-scholar", ("Bio*",), ["70000001"]),
        ("arxiv", ("cs.*",), ["0704.0001", "0704.0003"]),
        ("arxiv", ("stat.ML",), ["0704.0003"]),
        ("arxiv", ("hep-*", "math.CO"), ["0704.0001", "hep-th/9901001"]),
    ],
)
def test_records_of_other_categories_are_left_out(form, categories, kept):
    """Those of any place count."""
    name = {"arxiv": "arxiv.json", "semantic-scholar": "semantic-scholar-papers.jsonl"}.get(
        form, f"{form}.jsonl"
    )
    entries = read(form, (FILES / name).read_bytes(), categories=categories)
    assert [
        entry.record["paper_id"] for entry in entries if not isinstance(entry.record, RecordError)
    ] == kept


def test_records_of_other_categories_are_not_even_parsed():
    assert read("arxiv", b'{"categories": "hep-th", "title": broken\n', categories=("cs.*",)) == []


@pytest.mark.parametrize("indent", [None, 2])
def test_an_answer_with_one_work(indent):
    work = (FILES / "crossref.jsonl").read_bytes().splitlines()[0]
    answer = {"status": "ok", "message-type": "work", "message": json.loads(work)}
    assert FORMATS["crossref"].recognizes(Head("answer.json", json.dumps(answer, indent=indent).encode()))
    assert [each.record for each in read("crossref", answer, indent)] == [read("crossref", work)[0].record]


def test_a_list_that_is_cut_is_recognized():
    data = json.dumps({"items": [BASES["crossref"]] * 5000}).encode()
    assert FORMATS["crossref"].recognizes(Head("0.json.gz", data[:HEAD_BYTES]))
    assert len(read("crossref", data)) == 5000


@pytest.mark.parametrize("part", ["<jats:title>", "</tex-math><mml:math", "<jats:title> ", "</mml:math>"])
def test_long_abstracts_without_sense_take_little_time(part):
    begin = time.process_time()
    read("crossref", BASES["crossref"] | {"abstract": part * 100_000})
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("change", "found", "reason"),
    [
        ({"id": None}, "a work's id such as https://openalex.org/W2741809807, found none", "no paper_id"),
        ({"id": "https://openalex.org/A5"}, "a work's id such as", "not a record of this format"),
        (
            {"abstract_inverted_index": {"On": [0, -1]}},
            "positions from 0 to 100,000",
            "not a record of this format",
        ),
        ({"abstract_inverted_index": {"On": [100_001]}}, "positions", "not a record of this format"),
        ({"abstract_inverted_index": {"On": [True, "x"]}}, "positions", "not a record of this format"),
        ({"abstract_inverted_index": {"On": 7}}, "lists of positions", "not a record of this format"),
        (
            {
                "abstract_inverted_index": {"x" * 1_000_000: [7] * 1_000_000}
            },  # refused before it is put together
            "abstract of at most 1,000,000 characters",
            "abstract that is too long",
        ),
    ],
)
def test_defects_have_errors_that_say_them(change, found, reason):
    error = record("openalex", change)
    assert isinstance(error, RecordError)
    assert str(error).startswith(f"garbage, line 1: expected {found}")
    assert error.reason == reason


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
def test_shapes_that_tools_write(content, expected, indent):
    data = json.dumps(content, indent=indent).encode()
    assert FORMATS["csl-json"].recognizes(Head("library.json", data))
    assert results(read("csl-json", data)) == expected


def test_an_item_of_zotero_has_all_that_a_paper_has():
    assert read("csl-json", [{"data": ZOTERO}])[0].record == AS_PAPER


@pytest.mark.parametrize(
    ("ids", "paper_id"),
    [
        (("2020.acl", "main", "1"), "2020.acl-main.1"),
        (("2021.findings", "acl", "23"), "2021.findings-acl.23"),
        (("P18", "1", "1"), "P18-1001"),
        (("J93", "2", "3"), "J93-2003"),
        (("W02", "1", "18"), "W02-0118"),
        (("W19", "62", "7"), "W19-6207"),
        (("C69", "1", "1"), "C69-0101"),
        (("C00", "1", "1"), "C00-1001"),
        (("D19", "1", "407"), "D19-1407"),
        (("D19", "4", "1"), "D19-4001"),
        (("D19", "5", "1"), "D19-0501"),
        (("D19", "50", "12"), "D19-5012"),
        (("D18", "5", "1"), "D18-5001"),
    ],
)
def test_ids_of_the_acl_anthology(ids, paper_id):
    assert anthology_id(*ids, where="here") == paper_id


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (("", "1", "1"), "'', '1', '1'"),
        (("P18", "main", "1"), "'P18', 'main', '1'"),
        (("P18", "1", "²"), "'P18', '1', '\\xb2'"),
        (("2020.acl", "main", " "), "'2020.acl', 'main', ''"),
        (("P18", "1", "12345"), "'P18', '1', '12345'"),
    ],
)
def test_ids_of_the_acl_anthology_that_are_none(ids, found):
    with pytest.raises(RecordError) as caught:
        anthology_id(*ids, where="here")
    assert str(caught.value) == (
        f"here: expected ids of collection, volume and paper such as P18, 1 and 1, found {found}; "
        "mend or remove the record"
    )
    assert caught.value.reason == "not a record of this format"
