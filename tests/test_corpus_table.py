"""Tables of papers in CSV and TSV."""

import csv
from typing import Any

import pytest
from support.formats import buffered

from qbe.corpus import tables
from qbe.corpus.records import Entry, Reading
from qbe.corpus.streams import Head
from qbe.errors import CorpusError, RecordError

DOI = "https://doi.org/10.1234/A"


def read(data: bytes | str, name: str = "papers.csv", **columns: str) -> list[Entry]:
    return list(tables.read_table(buffered(data), name, Reading(columns=columns)))


def only(columns: str, cells: str) -> Any:
    [entry] = read(f"title\tabstract\t{columns}\nOn fish\tFish swim.\t{cells}\n", "papers.tsv")
    return entry.record


def test_a_table_with_unusual_columns_is_recognized_by_its_suffix() -> None:
    assert tables.is_table(Head("papers.csv", b"a,b\n1,2\n"))
    assert not tables.is_table(Head("papers", b"a,b\n1,2\n"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_that_of_the_header(delimiter: str) -> None:
    data = f'id,title,"abstract, {delimiter}"\n'.replace(",", delimiter, 2) + f"a{delimiter}B{delimiter}C"
    [entry] = read(data, abstract=f"abstract, {delimiter}")
    assert entry.record == {"paper_id": "a", "title": "B", "abstract": "C", "metadata": {}}


def test_columns_may_be_named() -> None:
    data = "id,nr,title,name,text,when\n1,x,wrong,A,B,2019-05\n"
    [entry] = read(data, id="nr", title="name", abstract="text", date="when")
    dated = {"year": 2019, "date": "2019-05"}
    assert entry.record == {"paper_id": "x", "title": "A", "abstract": "B", "metadata": dated}


@pytest.mark.parametrize(
    ("header", "paper_id"),
    [*(("PMID,DOI", "7"), ("DOI,Key", "7")), ("doi,x", "10.1234/a"), ("paper_id,doi", DOI)],
)
def test_ids_have_usual_names(header: str, paper_id: str) -> None:
    cells = "7,10.1234/A" if header.startswith("PMID") else f"{DOI},7"
    [entry] = read(f"title,abstract,{header}\nA,B,{cells}\n")
    assert entry.record["paper_id"] == paper_id


def test_a_row_may_lack_an_id() -> None:
    without = read("title,abstract\nA,B\n\nC,D\n")
    partly = read("title,abstract,doi\nA,B,10.1234/a\nC,D,\n")
    assert [entry.record["paper_id"] for entry in without] == [None, None]
    assert [entry.record["paper_id"] for entry in partly] == ["10.1234/a", None]


@pytest.mark.parametrize(
    ("columns", "cells", "metadata"),
    [
        ("categories", "cs.CL, cs.AI", {"categories": ["cs.CL", "cs.AI"]}),
        ("categories", "hep-th math.QA", {"categories": ["hep-th", "math.QA"]}),
        ("categories", "['Art', 'Music']", {"categories": ["Art", "Music"]}),
        ("fields_of_study", "Fish; Food, Feed", {"categories": ["Fish", "Food, Feed"]}),
        *(("cites", "1,2; 3", {"cites": ["1", "2", "3"]}), ("cites", "[1, 2]", {"cites": ["1", "2"]})),
        ("date", "2019-05-07T10:00:00Z", {"year": 2019, "date": "2019-05-07"}),
        *(("date", "5/7/2019", {"year": 2019}), ("Published Year", "2019.0", {"year": 2019})),
        ("Author/s", "O&#39;Neill, Ann;;Bob Ray", {"authors": ["Ann O'Neill", "Bob Ray"]}),
        ("authors", "Lee, Ann and others", {"authors": ["Ann Lee"], "et_al": True}),
        ("Authors\tAuthor full names", "Lee A.\tLee, Ann (57)", {"authors": ["Ann Lee"]}),
        ("Authors\tAuthor full names", "Lee A.\t", {"authors": ["A. Lee"]}),
        ("Author Keywords\tIndex Keywords", "\tfish|nets", {"tags": ["fish", "nets"]}),
        ("Source title\tLink", "Fish &amp; Chips\thttp://a", {"venue": "Fish & Chips", "url": "http://a"}),
    ],
)
def test_metadata_have_usual_names(columns: str, cells: str, metadata: dict[str, Any]) -> None:
    assert only(columns, cells)["metadata"] == metadata


@pytest.mark.parametrize(
    ("data", "results"),
    [
        ("id,title,abstract,note\n1,A,B\n2,C,D,,\n3,E,F,x,y\n4,G\n5,H,I,j", ["A", "C", None, None, "H"]),
        ("id,title,abstract,\n1,A,B\n2,C,D,\n", ["A", "C"]),
        ('id,title,abstract\n1,"A,B\n2,C,D\n3,E,"F\nG"\n', [None, "C", "E"]),
        ('id,title,abstract\n1,A,"B\n2,C,D\n3,E,F\n', [None, "C", "E"]),
        ('id\ttitle\tabstract\tx\n1\t"A" b\t"open\tz\n2\t"C ""d"""\tD\t"z"\n', ['"A" b', 'C "d"']),
        ('id\ttitle\tabstract\tx\n1\tA\t"two\nlines"\tz\n2\tC\t"D\n3\tE\tF\tz\n', ["A", None, "E"]),
        ("\n\nid,title,abstract\n1,A,B\n", ["A"]),
        ("id,title,abstract\r\r\n1,A,B\r\r\n", ["A"]),
        ("id,title,abstract\n,,\n\n1,A,B\n", ["A"]),
        ('"id","title","abstract"\n"1","A","say ""hi"" now"\n', ["A"]),
        ("\ufeffid;title;abstract\n1;A, b;C, d\n", ["A, b"]),
        ("id,title,title,abstract\n1,A,B,C\n", ["A"]),
    ],
)
def test_rows_with_flaws(data: str, results: list[str | None]) -> None:
    """None stands for a row that is left out."""
    records = [entry.record for entry in read(data, "export.tsv" if "\t" in data else "export.csv")]
    assert [None if isinstance(each, RecordError) else each["title"] for each in records] == results


def test_a_table_may_lack_abstracts_where_papers_may() -> None:
    reading = Reading(keep_without_abstract=True)
    [entry] = tables.read_table(buffered("PMID,Title\n7,On fish\n"), "papers.csv", reading)
    assert entry.record == {"paper_id": "7", "title": "On fish", "abstract": None, "metadata": {}}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        *((b"1,A,B,C", "a row with another number of fields"), (b'1,"A" B,C', "a malformed row")),
        *((b"1,M\xfcller,C", "text that is not UTF-8"), (b'1,"A\n\xfc",C', "text that is not UTF-8")),
        *((b"1,,C", "no title"), (b"1,A," + b"x" * 5_000_000, "a malformed row")),
    ],
)
def test_a_defect_concerns_one_row(row: bytes, reason: str) -> None:
    before, entry, after = read(b"id,title,abstract\na,A,B\n" + row + b"\nc,C,D\n")
    assert (before.record["paper_id"], after.record["paper_id"]) == ("a", "c")
    assert str(entry.record).startswith(f"papers.csv, line {3 + row.count(10)}: expected ")
    assert entry.record.reason == reason


def test_a_header_without_what_is_needed(told) -> None:
    messages = []
    for data, columns in (
        *(("nr,Titel,Text\n1,A,B\n", {}), ("id,title\n1,A\n", {}), ("title,abstract\nA,B\n", {"id": "nr"})),
        *(("", {}), ('"a\nb",' + "c" * 50 + ",d" * 20, {}), ("title,abstract\n".encode("utf-16"), {})),
        ('"title" x,abstract\n', {}),
    ):
        with pytest.raises(CorpusError) as caught:
            read(data, **columns)
        assert type(caught.value) is CorpusError
        messages.append(str(caught.value))
    told("tables", messages)


def test_long_fields_are_read_and_the_limit_of_the_process_stays() -> None:
    before = csv.field_size_limit()
    entries = tables.read_table(buffered(f"title,abstract,text\nA,B,{'x' * 200_000}\n"), "a", Reading())
    assert next(entries).record["title"] == "A"
    assert csv.field_size_limit() == before == 131072
