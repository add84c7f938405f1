"""Exact comparisons of a query's vectors with those of papers, where the vectors are."""

from __future__ import annotations

from qbe.index.dense.compare import COMPARISONS
from qbe.index.dense.contracts import Compared, Floats, VectorStore
from qbe.index.rows import Rows


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
