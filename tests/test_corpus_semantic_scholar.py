"""Papers of Semantic Scholar."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import semantic_scholar
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.semantic_scholar import has_only_abstracts, join_abstracts
from qbe.errors import CorpusError, OutputError, RecordError

PAPERS, ABSTRACTS = "semantic-scholar-papers.jsonl", "semantic-scholar-abstracts.jsonl"
SAMPLES = [PAPERS, ABSTRACTS, "semantic-scholar-answer.json", "s2orc.jsonl"]


def read(data: bytes, reading: Reading | None = None) -> list[Entry]:
    return list(semantic_scholar.read(buffered(data), "garbage", reading or Reading()))


A, B = {"paperId": "a", "title": "A"}, {"paperId": "b", "title": "B"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"recommendedPapers": [A, B]}, [("a", "A"), ("b", "B")]),
        ({"total": 2, "offset": 0, "next": 2, "data": [A, B]}, [("a", "A"), ("b", "B")]),
        ({"offset": 0, "data": [{"contexts": ["x"], "citedPaper": A}]}, [("a", "A")]),
        ({"data": [{"isInfluential": False, "intents": [], "citingPaper": B}]}, [("b", "B")]),
        ({"offset": 0, "data": [{"citedPaper": {"paperId": None, "title": "C"}}]}, [(None, "C")]),
        ({"authorId": "7", "papers": [A]}, [("a", "A")]),
        ({"data": [A | {"title": None}, B]}, ["no title", ("b", "B")]),
        ([A | {"year": 2019.0}, None, None, B], [("a", "A"), "null", "null", ("b", "B")]),
        ([{"paperId": None, "corpusId": 7, "title": "A"}], [("7", "A")]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_answers_of_the_api(content: Any, expected: list[Any], indent: int | None) -> None:
    data = json.dumps(content, indent=indent).encode()
    assert semantic_scholar.recognizes(Head("answer.json", data))
    records = [entry.record for entry in read(data)]
    assert not any(isinstance(each, RecordError) and each.is_fault for each in records)
    assert [
        each.reason if isinstance(each, RecordError) else (each["paper_id"], each["title"])
        for each in records
    ] == expected


def test_only_the_data_set_of_abstracts_has_only_abstracts() -> None:
    """They are of no field, and all kept."""
    assert len(read((FORMATS / ABSTRACTS).read_bytes(), Reading(categories=("Bio*",)))) == 2
    heads = [Head(name, (FORMATS / name).read_bytes()) for name in SAMPLES]
    assert [head.name for head in heads if has_only_abstracts(head)] == [ABSTRACTS]


def _paper(paper_id: str, abstract: str | None) -> Entry:
    return Entry(f"p, {paper_id}", {"paper_id": paper_id, "title": "T", "abstract": abstract, "metadata": {}})


def test_abstracts_are_joined_by_id_in_the_order_of_the_papers(tmp_path: Path) -> None:
    papers = [_paper("1", None), _paper("2", "Own."), _paper("3", None)]
    abstracts = [_paper("3", "Three."), _paper("2", "Other."), _paper("3", "Later."), _paper("1", None)]
    joined = join_abstracts(iter(papers), iter(abstracts), tmp_path)
    assert [(each.where, each.record["abstract"]) for each in joined] == [
        ("p, 1", None),
        ("p, 2", "Own."),
        ("p, 3", "Three."),
    ]


def test_errors_of_both_sides_are_passed_on(tmp_path: Path) -> None:
    bad = Entry("a, line 1", RecordError("a, line 1: bad", "bad"))
    worse = Entry("p, line 1", RecordError("p, line 1: bad", "bad"))
    joined = join_abstracts(iter([worse, _paper("1", None)]), iter([bad, _paper("1", "One.")]), tmp_path)
    assert list(joined) == [bad, worse, _paper("1", "One.")]


@pytest.mark.parametrize("side", ["papers", "abstracts"])
def test_nothing_is_left_in_the_folder_after_an_error(tmp_path: Path, side: str) -> None:
    def broken() -> Iterator[Entry]:
        yield _paper("1", "One.")
        raise CorpusError("here: broken")

    sides = (broken(), iter([])) if side == "papers" else (iter([]), broken())
    with pytest.raises(CorpusError, match=r"^here: broken$"):
        list(join_abstracts(*sides, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_of_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(*arguments: Any, **options: Any) -> sqlite3.Connection:
        store = connect(*arguments, **options)
        store.execute("PRAGMA max_page_count = 4")
        return store

    monkeypatch.setattr(sqlite3, "connect", small)
    abstracts = (_paper(str(number), "x" * 1000) for number in range(1000))
    with pytest.raises(OutputError, match="database or disk is full; free some space"):
        list(join_abstracts(iter([]), abstracts, tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="none: No such file or directory"):
        list(join_abstracts(iter([]), iter([]), tmp_path / "none"))
