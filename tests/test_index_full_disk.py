"""A disk that is full when Lucene writes: one line that says so, whatever Lucene reports."""

import shutil
from collections import namedtuple

import pytest

from qbe.errors import IndexBuildError
from qbe.index import lucene

Usage = namedtuple("Usage", "free")


@pytest.mark.parametrize(
    ("free", "message"),
    [
        (1_000, r"expected room for Lucene's index of 3 papers"),
        (1 << 40, r"expected Lucene to index 3 papers"),
    ],
)
def test_what_lucene_left_unfinished(tmp_path, monkeypatch, free, message):
    papers = tmp_path / lucene.INPUT
    papers.mkdir()
    (papers / "0000000000.jsonl").write_text('{"id": "1", "contents": "fish"}\n' * 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free))
    monkeypatch.setattr(
        lucene, "LUCENE", "lucene-input/0000000000.jsonl/lucene"
    )  # where nothing can be written
    with pytest.raises(IndexBuildError, match=message):
        lucene.write_lucene_index(tmp_path, 3, 1)
