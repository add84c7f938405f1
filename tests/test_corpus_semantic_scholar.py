"""Papers of Semantic Scholar."""

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


def test_only_the_data_set_of_abstracts_has_only_abstracts() -> None:
    """They are of no field, and all kept."""
    assert len(read((FORMATS / ABSTRACTS).read_bytes(), Reading(categories=("Bio*",)))) == 2
    heads = [Head(name, (FORMATS / name).read_bytes()) for name in SAMPLES]
    assert [head.name for head in heads if has_only_abstracts(head)] == [ABSTRACTS]


def _paper(paper_id: str, abstract: str | None) -> Entry:
    return Entry(f"p, {paper_id}", {"paper_id": paper_id, "title": "T", "abstract": abstract, "metadata": {}})


def test_abstracts_are_joined_by_id_in_the_order_of_the_papers(tmp_path: Path) -> None:
    bad, worse = (Entry(f"{each}, line 1", RecordError("bad", "bad")) for each in "ap")
    papers = [worse, _paper("1", None), _paper("2", "Own."), _paper("3", None)]
    abstracts = [bad, _paper("3", "Three."), _paper("2", "Other."), _paper("3", "Later."), _paper("1", None)]
    joined = join_abstracts(iter(papers), iter(abstracts), tmp_path)
    assert list(joined) == [bad, worse, _paper("1", None), _paper("2", "Own."), _paper("3", "Three.")]


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
