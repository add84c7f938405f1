"""The vectors of an index by paper, out of its memory-mapped files."""

from __future__ import annotations

from qbe.index.dense.contracts import SentenceBlock
from qbe.index.dense.stored import Vectors
from qbe.index.rows import Rows, block_starts, sentence_rows


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
