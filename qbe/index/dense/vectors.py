"""What dense search needs of an index: candidates for query vectors, and the vectors to score them by.

Dense search has two steps. A `CandidateSource` finds papers that may be near, approximately or exactly, and
a `VectorStore` hands out their stored vectors, by which they are scored exactly. Both name papers by row
(see `qbe.index.views`), so that any source goes with any store of the same index. FAISS
(`qbe.index.dense.faiss_candidates`) and memory-mapped files are the implementations here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.scoring import COMPARISONS
from qbe.index.dense.stored import Vectors
from qbe.index.rows import Rows, Selection, block_starts, sentence_rows

Floats = NDArray[np.float32]


class SentenceBlock(NamedTuple):
    """The sentences of some papers, concatenated.

    ``vectors`` (sentences, dimension) are as stored (see `qbe.index.dense.stored.Vectors`); the functions of
    `qbe.index.dense.scoring` take them as they are. Those of paper i are from ``starts[i]`` to
    ``starts[i + 1]``, or to the end for the last paper; ``starts`` is (papers,) int64. ``rows`` (sentences,)
    int64 are the positions among all sentences of the index, such as of a facet mask.

    >>> block = index.vector_store.gather(np.array([1, 0]))
    >>> block.vectors.shape, block.starts.tolist(), block.rows.tolist()
    ((10, 384), [0, 5], [5, 6, 7, 8, 9, 0, 1, 2, 3, 4])
    """

    vectors: Vectors
    starts: Rows
    rows: Rows


class CandidateSource(Protocol):
    """Finds the papers whose sentences are nearest to those of a query.

    Several threads may use one source at a time. The papers of one query do not depend on the other queries
    of the same call.

    >>> query = index.sentence_vectors[:2].astype(np.float32)
    >>> [rows] = index.candidate_source().nearest([query], k=5)
    >>> 0 in rows  # the paper that the vectors are from
    True
    """

    def nearest(
        self,
        queries: Sequence[Floats],
        k: int,
        allowed: Selection | None = None,
        by_mean: bool = False,
    ) -> Iterator[Rows]:
        """For each query its candidates: rows of papers, int64, ascending, each once.

        A query is the vectors of its sentences, (n, dimension) float32, n at least 1. ``k`` is the number of
        papers asked for; a source looks up enough sentences that this many papers are likely among the
        candidates. There may be more, and fewer where sentences of the same papers are nearest. Deleted
        papers are never retrieved. ``allowed`` restricts retrieval to some papers (None: all): then there are
        at least ``k`` candidates, or all of these. Where papers are then scored ``by_mean`` (by
        `qbe.index.dense.scoring.mean_max`), a source may leave out candidates that cannot be among the best
        ``k``. Raises IndexFormatError
        where the source is damaged.
        """


class Compared(NamedTuple):
    """The sentences of some papers compared with a query's.

    ``similarities`` (queries, sentences) float32; ``starts`` (papers,) and ``rows`` (sentences,) are those of
    a `SentenceBlock`; ``whole`` (papers,) float32 has the similarities of whole papers, if asked for.
    """

    similarities: Floats
    starts: Rows
    rows: Rows
    whole: Floats | None


class VectorStore(Protocol):
    """Gives the stored vectors of papers by row, and compares them; several threads may use one store at a
    time.

    >>> index.vector_store.similarity, index.vector_store.whole(np.array([1, 0])).shape
    ('cosine', (2, 384))
    >>> query = index.sentence_vectors[5:6].astype(np.float32)
    >>> index.vector_store.compare(query, np.array([1])).similarities.shape
    (1, 5)
    """

    @property
    def similarity(self) -> str:
        """How the vectors are compared, one of `qbe.models.formats.SIMILARITIES`."""

    def gather(self, rows: Rows) -> SentenceBlock:
        """The sentence vectors of papers (n,), in the order of ``rows``."""

    def whole(self, rows: Rows) -> Vectors:
        """The whole-paper vectors (n, dimension) of papers (n,), as stored, in the order of ``rows``."""

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        """Compare papers (n,), in the order of ``rows``, exactly with the ``sentences`` (m, dimension) of a
        query and with its ``whole`` vector (dimension,), wherever the vectors are. A similarity depends on
        its two vectors alone.
        """


class MappedVectors:
    """A `qbe.index.dense.vectors.VectorStore` over arrays of all vectors of an index.

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
        """See `qbe.index.dense.vectors.VectorStore.gather`."""
        positions = sentence_rows(self._starts, rows)
        vectors: Vectors = self._sentences[positions]
        return SentenceBlock(vectors, block_starts(self._starts, rows), positions)

    def whole(self, rows: Rows) -> Vectors:
        """See `qbe.index.dense.vectors.VectorStore.whole`."""
        vectors: Vectors = self._whole[rows]
        return vectors

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        """See `qbe.index.dense.vectors.VectorStore.compare`."""
        block, compare = self.gather(rows), COMPARISONS[self.similarity]
        of_papers = None if whole is None else compare(whole[None], self.whole(rows))[0]
        return Compared(compare(sentences, block.vectors), block.starts, block.rows, of_papers)
