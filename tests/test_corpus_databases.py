"""Works and items of databases and reference managers in JSON, and the ids of the ACL Anthology."""

import json
from typing import Any

import pytest
from support.formats import FORMATS as FILES
from support.formats import buffered

from qbe.corpus.reading import FORMATS, read_corpus
from qbe.corpus.records import Entry, Reading
from qbe.corpus.streams import HEAD_BYTES, Head
from qbe.corpus.xml_formats import anthology_id
from qbe.errors import RecordError


def read(form: str, content: Any, indent: int | None = None, **reading: Any) -> list[Entry]:
    data = content if isinstance(content, bytes) else json.dumps(content, indent=indent).encode()
    return list(FORMATS[form].read(buffered(data), "garbage", Reading(**reading)))


def results(entries: list[Entry]) -> list[Any]:
    """Id and title of each record, or the reason for which it is none."""
    return [
        each.reason if isinstance(each, RecordError) else (each["paper_id"], each["title"])
        for each in (entry.record for entry in entries)
    ]


@pytest.mark.parametrize(
    ("name", "categories", "kept"),
    [
        ("crossref.jsonl", ("Aquatic*",), ["10.5555/(sici)1097-0258(2021)40:1<16::aid-net9>3.0.co;2-2"]),
        ("openalex.jsonl", ("Computer *",), ["W4100000001"]),
        ("semantic-scholar-papers.jsonl", ("Bio*",), ["70000001"]),
        ("arxiv.json", ("cs.*",), ["0704.0001", "0704.0003"]),
        ("arxiv.json", ("hep-*", "math.CO"), ["0704.0001", "hep-th/9901001"]),
    ],
)
def test_records_of_other_categories_are_left_out(name, categories, kept):
    """Those of any place count."""
    reading = Reading(categories=categories, on_error="skip", keep_without_abstract=True)
    papers = read_corpus([str(FILES / name)], lambda text: [text], reading)
    assert [paper.paper_id for paper in papers] == kept


def test_records_of_other_categories_are_not_even_parsed():
    assert read("arxiv", b'{"categories": "hep-th", "title": broken\n', categories=("cs.*",)) == []


@pytest.mark.parametrize("indent", [None, 2])
def test_an_answer_with_one_work(indent):
    work = (FILES / "crossref.jsonl").read_bytes().splitlines()[0]
    answer = {"status": "ok", "message-type": "work", "message": json.loads(work)}
    assert FORMATS["crossref"].recognizes(Head("answer.json", json.dumps(answer, indent=indent).encode()))
    assert [each.record for each in read("crossref", answer, indent)] == [read("crossref", work)[0].record]


def test_a_list_that_is_cut_is_recognized():
    data = json.dumps({"items": [{"DOI": "10.5555/7", "title": ["On fish"]}] * 5000}).encode()
    assert FORMATS["crossref"].recognizes(Head("0.json.gz", data[:HEAD_BYTES]))
    assert len(read("crossref", data)) == 5000


def test_defects_of_works_have_errors_that_say_them(told):
    works: list[dict[str, Any]] = [{"id": None}, {"id": "https://openalex.org/A5"}]
    works += [{"abstract_inverted_index": {"On": each}} for each in (7, [0, -1], [100_001], [True, "x"])]
    works += [{"abstract_inverted_index": {"x" * 1_000_000: [7] * 1_000_000}}]  # refused before put together
    base = {"id": "https://openalex.org/W7", "title": "On fish"}
    errors: list[Any] = [entry.record for work in works for entry in read("openalex", base | work)]
    reasons = ["no paper_id", *["not a record of this format"] * 5, "abstract that is too long"]
    assert [error.reason for error in errors] == reasons
    told("works of OpenAlex", list(map(str, errors)))


OWN = {"id": "a", "title": "On fish", "issued": {"raw": "2019"}}
ZOTERO = {"itemType": "journalArticle", "title": "On fish", "abstractNote": "Fish swim.", "key": "AB12"}
ZOTERO |= {"extra": "PMID: 7\nCitation Key: lee2019"}
CSL, S2 = "csl-json", "semantic-scholar"
FISH, LEE = [("a", "On fish"), ("b", "On fish")], ("lee2019", "On fish")
A, B = {"paperId": "a", "title": "A"}, {"paperId": "b", "title": "B"}


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        (CSL, {"items": [OWN]}, FISH[:1]),
        (CSL, OWN, FISH[:1]),
        (CSL, [OWN | {"type": None}, OWN | {"type": "podcast", "id": "b"}], FISH),
        (CSL, [OWN | {"note": "Citation Key: lee"}], [("lee", "On fish")]),
        (CSL, {"config": {}, "collections": {"C": {"items": [1]}}, "items": [ZOTERO]}, [LEE]),
        (CSL, [{"key": "AB12", "version": 3, "library": {}, "data": ZOTERO}], [LEE]),
        (CSL, [ZOTERO, {"itemType": "attachment", "title": "PDF"}], [LEE, "not a paper"]),
        (CSL, [OWN | {"id": True}], ["not a record of this format"]),
        (CSL, [OWN, None, OWN | {"id": "b"}], [FISH[0], "null", FISH[1]]),
        (S2, {"recommendedPapers": [A, B]}, [("a", "A"), ("b", "B")]),
        (S2, {"total": 2, "offset": 0, "next": 2, "data": [A, B]}, [("a", "A"), ("b", "B")]),
        (S2, {"offset": 0, "data": [{"contexts": ["x"], "citedPaper": A}]}, [("a", "A")]),
        (S2, {"data": [{"isInfluential": False, "intents": [], "citingPaper": B}]}, [("b", "B")]),
        (S2, {"offset": 0, "data": [{"citedPaper": {"paperId": None, "title": "C"}}]}, [(None, "C")]),
        (S2, {"authorId": "7", "papers": [A]}, [("a", "A")]),
        (S2, {"data": [A | {"title": None}, B]}, ["no title", ("b", "B")]),
        (S2, [A | {"year": 2019.0}, None, None, B], [("a", "A"), "null", "null", ("b", "B")]),
        (S2, [{"paperId": None, "corpusId": 7, "title": "A"}], [("7", "A")]),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_shapes_that_tools_and_answers_have(form, content, expected, indent):
    data = json.dumps(content, indent=indent).encode()
    assert FORMATS[form].recognizes(Head("library.json", data))
    entries = read(form, data)
    assert results(entries) == expected
    if form == "semantic-scholar":  # whose answers have nulls in place of papers and titles
        errors = [each.record for each in entries if isinstance(each.record, RecordError)]
        assert not any(error.is_fault for error in errors)


@pytest.mark.parametrize(
    "case",
    [
        *("2021.findings acl 23 2021.findings-acl.23", "J93 2 3 J93-2003", "W19 62 7 W19-6207"),
        *("C69 1 1 C69-0101", "C00 1 1 C00-1001", "D19 1 407 D19-1407", "D19 4 1 D19-4001"),
        *("D19 50 12 D19-5012", "D18 5 1 D18-5001", "P18 main 1 -", "P18 1 \u00b2 -", "P18 1 12345 -"),
    ],
)
def test_ids_of_the_acl_anthology(case):
    *ids, paper_id = case.split()
    if paper_id != "-":
        assert anthology_id(*ids) == paper_id
        return
    for broken in (ids, ["", "1", "1"], ["2020.acl", "main", " "]):
        with pytest.raises(RecordError, match="expected ids of collection, volume and paper"):
            anthology_id(*broken)
