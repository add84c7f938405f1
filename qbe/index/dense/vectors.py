"""The files of sentence and whole-paper vectors in an index, memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.ann import FLOAT16
from qbe.index.dense.compare import COMPARISONS
from qbe.index.dense.contracts import Compared, Floats, SentenceBlock, VectorStore
from qbe.index.dense.stored import Vectors, open_vectors
from qbe.index.openfiles import OpenFiles
from qbe.index.rows import Rows, block_starts, sentence_rows

SENTENCES = "vectors.npy"
WHOLE = "whole.npy"


def read_vectors(folder: Path | OpenFiles, stored: str = FLOAT16) -> tuple[Vectors, Vectors]:
    """Sentence vectors and whole-paper vectors of an index, memory-mapped; raises IndexFormatError.

    >>> sentences, whole = read_vectors(Path("indexes/sample"))
    >>> sentences.shape, whole.shape
    ((594, 384), (128, 384))
    """
    return open_vectors(folder, SENTENCES, stored), open_vectors(folder, WHOLE, stored)


def silent(_: int) -> None:
    """Takes the number of vectors just added to an index, and shows nothing.

    >>> silent(3)
    """


def blocks(vectors: Vectors, rows: int = 65536) -> Iterator[NDArray[np.float32]]:
    """The vectors as float32 arrays of up to ``rows`` rows, in order.

    >>> [len(block) for block in blocks(np.zeros((5, 2), np.float16), rows=2)]
    [2, 2, 1]
    """
    for first in range(0, len(vectors), rows):
        yield vectors[first : first + rows].astype(np.float32)


class MappedVectors:
    """A `qbe.index.dense.contracts.VectorStore` over arrays of all vectors of an index.

    >>> import numpy as np
    >>> store = MappedVectors(index.sentence_vectors, index.whole_vectors, index.layout.starts, "cosine")
    >>> store.gather(np.array([0, 1])).starts.tolist()
    [0, 5]
    """

    def __init__(self, sentences: Vectors, whole: Vectors, starts: Rows, similarity: str) -> None:
        """``sentences`` (sentences, dimension) and ``whole`` (papers, dimension) are all vectors; the
        sentences of paper i are from ``starts[i]`` to ``starts[i + 1]``, (papers + 1,).
        """
        self._sentences, self._whole, self._starts = sentences, whole, starts
        self.similarity = similarity

    def gather(self, rows: Rows) -> SentenceBlock:
        """See `qbe.index.dense.contracts.VectorStore.gather`."""
        positions = sentence_rows(self._starts, rows)
        vectors: Vectors = self._sentences[positions]
        return SentenceBlock(vectors, block_starts(self._starts, rows), positions)

    def whole(self, rows: Rows) -> Vectors:
        """See `qbe.index.dense.contracts.VectorStore.whole`."""
        vectors: Vectors = self._whole[rows]
        return vectors


class StoredComparer:
    """A `qbe.index.dense.contracts.Comparer` over a store of vectors.

    >>> import numpy as np
    >>> query = index.sentence_vectors[5:7].astype(np.float32)
    >>> compared = StoredComparer(index.vector_store).compare(query, np.array([1]))
    >>> compared.similarities.shape, compared.starts.tolist(), compared.rows.tolist()
    ((2, 5), [0], [5, 6, 7, 8, 9])
    """

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors
        self._compare = COMPARISONS[vectors.similarity]

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        """See `qbe.index.dense.contracts.Comparer.compare`."""
        block = self._vectors.gather(rows)
        of_papers = None if whole is None else self._compare(whole[None], self._vectors.whole(rows))[0]
        return Compared(self._compare(sentences, block.vectors), block.starts, block.rows, of_papers)
