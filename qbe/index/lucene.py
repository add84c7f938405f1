"""The Lucene index of a segment, built by Anserini's IndexCollection out of files of JSON lines."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError
from qbe.index import jvm as _jvm
from qbe.index.papers import IDS
from qbe.index.store import Files
from qbe.types import Paper
from qbe.util.files import link_or_copy

LUCENE = "lucene"
ROWS = "rows.npy"
"""In Lucene's folder: the row of the paper of each of its documents, (documents,) int32. Lucene numbers
documents as its threads index them, so that two builds differ in it as in Lucene's other files.
"""
K1 = 0.9
B = 0.4
"""BM25 parameters: Anserini's defaults (Yang et al., 2018)."""

INPUT = "lucene-input"
"""A folder of Anserini's input, there until the Lucene index is built."""
_PAPERS_A_FILE = 10_000
_IDS_AT_A_TIME = 20_000


def contents(paper: Paper) -> str:
    """The text that is indexed for BM25: title and abstract, with a space between.

    >>> from qbe.types import Sentence
    >>> contents(Paper("1", "On fish", (Sentence("Fish swim."), Sentence("We count them."))))
    'On fish Fish swim. We count them.'
    """
    return f"{paper.title} {paper.abstract}"


def write_input(folder: Path, papers: Iterable[Paper]) -> Iterator[Paper]:
    """Pass papers through while writing them into ``folder/lucene-input`` as Anserini reads them: a folder
    of files of JSON lines, each read by one thread.

    >>> folder = Path("input")
    >>> folder.mkdir()
    >>> sum(1 for paper in write_input(folder, index))
    128
    >>> [path.name for path in (folder / "lucene-input").iterdir()]
    ['0000000000.jsonl']
    """
    target = folder / INPUT
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    stream = iter(papers)
    for first in itertools.count(step=_PAPERS_A_FILE):
        head = next(stream, None)
        if head is None:
            return
        with (target / f"{first:010d}.jsonl").open("w", encoding="utf-8") as lines:
            try:
                for paper in itertools.chain([head], itertools.islice(stream, _PAPERS_A_FILE - 1)):
                    lines.write(json.dumps({"id": paper.paper_id, "contents": contents(paper)}) + "\n")
                    yield paper
            except GeneratorExit:  # the reader of the papers failed, and says so
                with contextlib.suppress(OSError):
                    lines.close()
                raise


def write_lucene_index(
    folder: Path,
    count: int,
    threads: int,
    positions: bool = False,
    docvectors: bool = False,
) -> dict[str, Any]:
    """Index the ``count`` papers that `write_input` wrote into ``folder/lucene``; their input stays.

    Returns versions, settings and term statistics. Raises IndexBuildError when Lucene fails or drops a paper.
    """
    shutil.rmtree(folder / LUCENE, ignore_errors=True)
    _jvm.silence_log4j()
    arguments = _jvm.java_class("io.anserini.index.IndexCollection$Args")()
    arguments.collectionClass = "JsonCollection"
    arguments.generatorClass = "DefaultLuceneDocumentGenerator"
    arguments.input = str(folder / INPUT)
    arguments.index = str(folder / LUCENE)
    arguments.threads = threads
    arguments.storePositions = positions
    arguments.storeDocvectors = docvectors
    arguments.optimize = True
    arguments.quiet = True
    try:
        indexer = _jvm.java_class("io.anserini.index.IndexCollection")(arguments)
        _jvm.silence_log4j()
        indexer.run()
        statistics = _finish(folder)
    except Exception as error:
        raise _unfinished(folder, count, _jvm.java_message(error)) from error
    if statistics["documents"] != count:
        raise _unfinished(folder, count, f"{statistics['documents']} documents")
    settings = {"k1": K1, "b": B, "positions": positions, "docvectors": docvectors}
    return {"version": _jvm.lucene_version(), **settings, **statistics}


def update_lucene(folder: Path, old: Path, added: Path | None, deleted: Sequence[str]) -> dict[str, Any]:
    """Make the Lucene index of ``folder`` out of that of ``old``: without the papers of some ids, and with
    those of the Lucene index in the folder ``added``; the papers of ``folder`` are there already.

    Lucene never changes a file once it is written, so that the two share them. Returns the version and
    term statistics. Raises IndexBuildError.
    """
    java, target = _jvm.java_class, folder / LUCENE
    count = (folder / IDS).read_bytes().count(b"\n")
    try:
        target.mkdir()
        for file in (old / LUCENE).iterdir():
            if file.name not in (ROWS, "write.lock"):
                link_or_copy(file, target / file.name)
        analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        config = java("org.apache.lucene.index.IndexWriterConfig")(analyzer)
        config.setMergeScheduler(java("org.apache.lucene.index.SerialMergeScheduler")())
        config.setSimilarity(java("org.apache.lucene.search.similarities.BM25Similarity")(K1, B))
        writer = java("org.apache.lucene.index.IndexWriter")(_directory(target), config)
        try:
            term, query = java("org.apache.lucene.index.Term"), java("org.apache.lucene.search.TermQuery")
            for first in range(0, len(deleted), _IDS_AT_A_TIME):
                some = deleted[first : first + _IDS_AT_A_TIME]
                writer.deleteDocuments([query(term("id", paper_id)) for paper_id in some])
            if added is not None:
                writer.addIndexes([_directory(added / LUCENE)])
            writer.forceMerge(1)
            writer.commit()
        finally:
            writer.close()
        statistics = _finish(folder)
    except Exception as error:
        raise _unfinished(folder, count, _jvm.java_message(error)) from error
    if statistics["documents"] != count:
        raise _unfinished(folder, count, f"{statistics['documents']} documents")
    return {"version": _jvm.lucene_version(), **statistics}


def _directory(folder: Path) -> Any:
    """A Lucene ``Directory`` on a folder."""
    path = _jvm.java_class("java.nio.file.Paths").get(str(folder.absolute()))
    return _jvm.java_class("org.apache.lucene.store.FSDirectory").open(path)


def _unfinished(folder: Path, count: int, result: str) -> IndexBuildError:
    """The error for an index that Lucene did not finish; a full disk has many exceptions."""
    return IndexBuildError(
        f"expected Lucene to index {count} papers into {folder / LUCENE}, found {result} and "
        f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB left on the disk; check its free space, and go on "
        "with `resume`"
    )


def _finish(folder: Path) -> dict[str, int]:
    """Write the rows of Lucene's documents; returns term statistics."""
    reader = _jvm.open_lucene(folder / LUCENE)
    try:
        ids = (folder / IDS).read_text(encoding="utf-8").split("\n")[:-1]
        if reader.numDocs() == len(ids):
            np.save(folder / LUCENE / ROWS, document_rows(reader, ids))
        return {"documents": reader.numDocs(), "tokens": reader.getSumTotalTermFreq("contents")}
    finally:
        reader.close()


def read_rows(folder: Path | Files, reader: Any, ids: Sequence[str]) -> NDArray[np.int32]:
    """The rows of the documents of a segment's Lucene index, as they were written, or, for one of an older
    version of qbe, by their ids. Raises IndexFormatError where they are not those of so many ``ids``.
    """
    files, name = Files.of(folder), f"{LUCENE}/{ROWS}"
    try:
        rows = files.array(name, "int32", 1) if files.has(name) else document_rows(reader, ids)
    except KeyError as error:
        raise files.damaged(LUCENE, f"documents of {len(ids)} papers", error) from error
    if not np.array_equal(np.sort(rows), np.arange(len(ids))) or reader.maxDoc() != len(ids):
        raise files.damaged(LUCENE, f"documents of {len(ids)} papers", f"{len(rows)} others")
    return rows


def document_rows(reader: Any, ids: Sequence[str]) -> NDArray[np.int32]:
    """The row of the paper of each of a reader's documents, (documents,) int32; ``ids`` are those of the
    papers by row. Raises KeyError for a document that is none of them.
    """
    java = _jvm.java_class
    searcher = java("org.apache.lucene.search.IndexSearcher")(reader.getContext())
    query = java("org.apache.lucene.search.MatchAllDocsQuery")()
    documents = java("io.anserini.search.ScoredDocs")
    row_of = {paper_id: row for row, paper_id in enumerate(ids)}
    rows: list[int] = []
    last = None
    while len(rows) < reader.maxDoc():
        # All have the same score, and so come by their numbers.
        top = searcher.searchAfter(last, query, _IDS_AT_A_TIME)
        rows += [row_of[paper_id] for paper_id in documents.fromTopDocs(top, searcher).docids]
        last = java("org.apache.lucene.search.ScoreDoc")(len(rows) - 1, 1.0)
    return np.array(rows, dtype=np.int32)
