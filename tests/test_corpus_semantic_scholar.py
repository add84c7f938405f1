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
from qbe.corpus.record import parse_paper
from qbe.corpus.semantic_scholar import has_only_abstracts, join_abstracts
from qbe.errors import CorpusError, OutputError, RecordError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

PAPERS, ABSTRACTS = "semantic-scholar-papers.jsonl", "semantic-scholar-abstracts.jsonl"
SAMPLES = [PAPERS, ABSTRACTS, "semantic-scholar-answer.json", "s2orc.jsonl"]
CONTENTS = [(FORMATS / name).read_bytes() for name in SAMPLES]
PAGE = "https://www.semanticscholar.org/paper/00000000000000000000000000000000000000"
IDS = {"arxiv": "2103.00001", "pmid": "33000001"}


def read(data: bytes, reading: Reading | None = None) -> list[Entry]:
    return list(semantic_scholar.read(buffered(data), "garbage", reading or Reading()))


def sample(name: str, reading: Reading | None = None) -> list[Entry]:
    return read((FORMATS / name).read_bytes(), reading)


def test_a_paper_of_the_bulk_data_with_its_abstract(tmp_path: Path) -> None:
    entries = join_abstracts(iter(sample(PAPERS)), iter(sample(ABSTRACTS)), tmp_path)
    where, record = next(entries)
    assert where == "garbage, line 1"
    assert parse_paper(record, where, split_sentences) == Paper(
        paper_id="70000001",
        title="Counting cod with Gödel's nets",
        sentences=(Sentence("Counting fish is slow."), Sentence("We use nets.")),
        labelled=False,
        metadata={
            "authors": ["Åsa Sjöström", "José Núñez"],
            "year": 2021,
            "date": "2021-03-14",
            "venue": "Journal of Nets",
            "categories": ["Biology", "Environmental Science"],
            "doi": "10.5555/fish.2021.001",
            "url": f"{PAGE}a1",
            "ids": IDS | {"pmc": "PMC8000001", "dblp": "journals/nets/Sjostrom21", "mag": "3100000001"},
        },
        offsets=((0, 22), (23, 35)),
    )


def test_a_paper_of_the_bulk_data_without_what_may_be_absent() -> None:
    assert sample(PAPERS)[1].record == {
        "paper_id": "70000002",
        "title": "Herring",
        "abstract": None,
        "metadata": {"venue": "Nets Conference", "url": f"{PAGE}a2"},
    }


def test_papers_of_an_answer() -> None:
    first, second = sample("semantic-scholar-answer.json")
    assert first.where == "garbage, item 1"
    assert parse_paper(first.record, first.where, split_sentences) == Paper(
        paper_id="00000000000000000000000000000000000000a1",
        title="Counting cod with nets",
        sentences=(Sentence("Counting fish is slow."), Sentence("We use nets.")),
        labelled=False,
        metadata={
            "authors": ["Åsa Sjöström"],
            "year": 2021,
            "date": "2021-03-14",
            "venue": "Nets Conference",
            "categories": ["Biology"],
            "doi": "10.5555/fish.2021.001",
            "url": f"{PAGE}a1",
            "cites": ["00000000000000000000000000000000000000a2"],
            "ids": IDS | {"acl": "2021.nets-1.1"},
        },
        offsets=((0, 22), (23, 35)),
    )
    assert second.record["metadata"] == {"categories": ["Biology"], "url": f"{PAGE}a2"}


A, B = {"paperId": "a", "title": "A"}, {"paperId": "b", "title": "B"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([None, A], ["null", ("a", "A")]),
        ({"recommendedPapers": [A, B]}, [("a", "A"), ("b", "B")]),
        ({"total": 2, "offset": 0, "next": 2, "data": [A, B]}, [("a", "A"), ("b", "B")]),
        ({"total": 1, "token": "x", "data": [A]}, [("a", "A")]),
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


def test_a_paper_of_s2orc() -> None:
    where, record = sample("s2orc.jsonl")[0]
    assert parse_paper(record, where, split_sentences) == Paper(
        paper_id="70000001",
        title="Counting cod with nets",
        sentences=(Sentence("BACKGROUND: Counting fish is slow."), Sentence("METHODS: We use nets.")),
        labelled=False,
        metadata={
            "authors": ["Åsa M. N. Sjöström Jr.", "Müller"],
            "year": 2021,
            "venue": "Journal of Nets",
            "categories": ["Biology"],
            "doi": "10.5555/fish.2021.001",
            "url": "https://api.semanticscholar.org/CorpusID:70000001",
            "cites": ["70000002"],
            "ids": IDS | {"acl": "2021.nets-1.1", "pmc": "PMC8000001", "mag": "3100000001"},
        },
        offsets=((0, 34), (35, 56)),
    )


def test_papers_of_other_fields_are_left_out() -> None:
    entries = sample(PAPERS, Reading(categories=("Bio*",)))
    assert [entry.record["paper_id"] for entry in entries] == ["70000001"]


def test_abstracts_are_of_no_field_and_all_kept() -> None:
    assert len(sample(ABSTRACTS, Reading(categories=("Bio*",)))) == 2


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_recognized(name: str) -> None:
    assert semantic_scholar.recognizes(Head(name, (FORMATS / name).read_bytes()))


def test_only_the_data_set_of_abstracts_has_only_abstracts() -> None:
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


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(
        OutputError, match=r"^cannot write .*none: No such file or directory; check the path$"
    ):
        list(join_abstracts(iter([]), iter([]), tmp_path / "none"))


def test_a_full_disk_is_an_error_of_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(*arguments: Any, **options: Any) -> sqlite3.Connection:
        store = connect(*arguments, **options)
        store.execute("PRAGMA max_page_count = 4")
        return store

    monkeypatch.setattr(sqlite3, "connect", small)
    abstracts = (_paper(str(number), "x" * 1000) for number in range(1000))
    with pytest.raises(OutputError) as caught:
        list(join_abstracts(iter([]), abstracts, tmp_path))
    assert str(caught.value) == (
        f"cannot write {tmp_path}: database or disk is full; free some space or choose another disk"
    )
    assert list(tmp_path.iterdir()) == []
