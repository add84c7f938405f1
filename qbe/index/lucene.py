"""The Lucene side of an index, built by Anserini's IndexCollection."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qbe import _jvm
from qbe.errors import IndexBuildError
from qbe.types import Paper

LUCENE = "lucene"
K1 = 0.9
B = 0.4
"""BM25 parameters: Anserini's defaults (Yang et al., 2018)."""

_INPUT = "lucene-input"
_PAPERS_A_FILE = 10_000


def contents(paper: Paper) -> str:
    """The text that BM25 sees: title and abstract."""
    return f"{paper.title} {paper.abstract}"


def write_postings(
    folder: Path, papers: Iterable[Paper], threads: int, positions: bool = False, docvectors: bool = False
) -> dict[str, Any]:
    """Index papers into ``folder/lucene``; returns versions, settings and term statistics.

    Raises IndexBuildError when Lucene fails or drops a paper.
    """
    staged = folder / _INPUT
    shutil.rmtree(staged, ignore_errors=True)
    shutil.rmtree(folder / LUCENE, ignore_errors=True)
    count = _write_input(staged, papers)
    arguments = _jvm.java_class("io.anserini.index.IndexCollection$Args")()
    arguments.collectionClass = "JsonCollection"
    arguments.generatorClass = "DefaultLuceneDocumentGenerator"
    arguments.input = str(staged)
    arguments.index = str(folder / LUCENE)
    arguments.threads = threads
    arguments.storePositions = positions
    arguments.storeDocvectors = docvectors
    arguments.optimize = True
    arguments.quiet = True
    try:
        indexer = _jvm.java_class("io.anserini.index.IndexCollection")(arguments)
        _jvm.silence()
        indexer.run()
        statistics = _statistics(folder / LUCENE)
    except Exception as error:
        raise _unfinished(folder, count, _jvm.java_message(error)) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    if statistics["documents"] != count:
        raise _unfinished(folder, count, f"{statistics['documents']} documents")
    settings = {"k1": K1, "b": B, "positions": positions, "docvectors": docvectors}
    return {"version": _jvm.lucene_version(), **settings, **statistics}


def _unfinished(folder: Path, count: int, found: str) -> IndexBuildError:
    return IndexBuildError(
        f"expected Lucene to index {count} papers into {folder / LUCENE}, found {found}; check the "
        "disk's free space and build again"
    )


def _write_input(folder: Path, papers: Iterable[Paper]) -> int:
    """Anserini reads a folder of JSON lines, one file a thread at a time."""
    folder.mkdir()
    stream = iter(papers)
    for count in itertools.count(step=_PAPERS_A_FILE):
        lines = [
            json.dumps({"id": paper.paper_id, "contents": contents(paper)}) + "\n"
            for paper in itertools.islice(stream, _PAPERS_A_FILE)
        ]
        if lines:
            (folder / f"{count:010d}.jsonl").write_text("".join(lines), encoding="utf-8")
        if len(lines) < _PAPERS_A_FILE:
            break
    return count + len(lines)


def _statistics(folder: Path) -> dict[str, int]:
    reader = _jvm.open_lucene(folder)
    try:
        terms = reader.getSumTotalTermFreq("contents")
        return {"documents": reader.numDocs(), "tokens": terms}
    finally:
        reader.close()
