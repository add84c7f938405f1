"""The Lucene indexes of an index's segments, opened for searching as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe import _jvm
from qbe.errors import IndexFormatError, InputError
from qbe.index.lucene import LUCENE
from qbe.index.rows import Rows, starts_of
from qbe.index.segments.snapshot import OpenSegment
from qbe.index.segments.views import Papers, PaperStores


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The postings of all segments as one ``reader``, with the BM25 parameters ``k1`` and ``b``.

    Lucene's ``MultiReader`` sums the statistics of all, so that scores are those of an index built in one go.
    Deleted papers still count in them, as documents that Lucene itself deleted do until they are merged away.
    ``starts`` (segments + 1,) says where the documents of each segment begin, which has one for each paper;
    ``dead`` has the ids of its deleted papers.

    >>> index.lucene.k1, index.lucene.b, index.lucene.reader.numDocs()
    (0.9, 0.4, 128)
    """

    reader: Any
    k1: float
    b: float
    starts: Rows
    dead: Sequence[frozenset[str]]

    def close(self) -> None:
        """Close the readers of all segments."""
        self.reader.close()


def open_postings(segments: Sequence[OpenSegment], papers: Papers, lucene: Mapping[str, Any]) -> Postings:
    """The postings of an index, with the parameters of its manifest; the caller closes them.

    Raises IndexFormatError where they are damaged, InputError where they may not be read.
    """
    multi_reader = _jvm.java_class("org.apache.lucene.index.MultiReader")  # raises where there is no Java
    readers = [_opened(segment.path / LUCENE) for segment in segments]
    reader = readers[0] if len(readers) == 1 else multi_reader(readers, True)
    starts, dead = starts_of([len(papers)]), [frozenset[str]()]
    if isinstance(papers, PaperStores):
        starts, dead = papers.starts, papers.dead_ids
    return Postings(reader, lucene["k1"], lucene["b"], starts, dead)


def _opened(folder: Path) -> Any:
    try:
        return _jvm.open_lucene(folder)
    except Exception as error:
        reason = _jvm.java_message(error)
        if reason.startswith("AccessDeniedException: "):
            file = reason.partition(": ")[2]
            raise InputError(
                f"cannot read {file}: access denied; choose an index that you may read"
            ) from error
        raise IndexFormatError(
            f"{folder}: expected a Lucene index, found {reason}; the index is damaged: build it again"
        ) from error
