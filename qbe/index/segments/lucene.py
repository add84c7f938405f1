"""The Lucene indexes of an index's segments, opened for searching as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe import _jvm
from qbe.errors import IndexFormatError
from qbe.index.lucene import LUCENE, read_rows
from qbe.index.openfiles import OpenFiles
from qbe.index.segments.snapshot import OpenSegment
from qbe.index.segments.views import PaperStore

_OF_A_LATER_LUCENE = ("IndexFormatTooNewException", "indexCreatedVersionMajor is in the future")
"""What Lucene says of an index that a later Lucene wrote."""


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The postings of all segments as one ``reader``, with the BM25 parameters ``k1`` and ``b``.

    Lucene's ``MultiReader`` sums the statistics of all, so that scores are those of an index built in one go.
    Deleted papers still count in them, as documents that Lucene itself deleted do until they are merged away.
    ``rows`` (documents,) int32 has the row of each document's paper, and ``alive`` (rows,) bool says which
    papers are not deleted; None where none is.

    >>> index.lucene.k1, index.lucene.b, index.lucene.reader.numDocs()
    (0.9, 0.4, 128)
    """

    reader: Any
    k1: float
    b: float
    rows: NDArray[np.int32]
    alive: NDArray[np.bool_] | None

    def close(self) -> None:
        """Close the readers of all segments."""
        self.reader.close()


def open_postings(segments: Sequence[OpenSegment], papers: PaperStore, lucene: Mapping[str, Any]) -> Postings:
    """The postings of an index, with the parameters of its manifest; the caller closes them.

    Raises IndexFormatError where they are damaged.
    """
    multi_reader = _jvm.java_class("org.apache.lucene.index.MultiReader")  # raises where there is no Java
    readers = [_opened(segment.files) for segment in segments]
    reader = readers[0] if len(readers) == 1 else multi_reader(readers, True)
    rows = np.concatenate(
        [
            read_rows(segment.files, each, store.ids) + np.int32(start)
            for segment, each, store, start in zip(
                segments, readers, papers.segments, papers.starts[:-1].tolist(), strict=True
            )
        ]
    )
    alive = papers.live_mask if papers.has_deleted else None
    return Postings(reader, lucene["k1"], lucene["b"], rows, alive)


def _opened(files: OpenFiles) -> Any:
    try:
        with files.linked(LUCENE) as folder:
            return _jvm.open_lucene(folder / LUCENE)
    except IndexFormatError:
        raise
    except Exception as error:
        reason = _jvm.java_message(error)
        if any(words in reason for words in _OF_A_LATER_LUCENE):
            raise IndexFormatError(
                f"{files.folder / LUCENE}: expected an index that Lucene {_jvm.lucene_version()} can read, "
                "found one of a later Lucene; open it with Python 3.12 or later, or build it again"
            ) from error
        raise files.damaged(LUCENE, "a Lucene index", reason) from error
