"""The FAISS index of one segment: which of its sentences are nearest to a query's sentences."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, UsageError, check_package, input_error
from qbe.index.dense import faiss_settings
from qbe.index.dense.ann import FLAT, IN_LISTS, IVF_OPQ_PQ, AnnParams

FAISS = "faiss.index"


class FaissSegment:
    """Nearest sentences of a segment by its own similarity, among all its sentences or those of papers that
    are not deleted.

    A `qbe.index.dense.faiss_candidates.SentenceSearch`.

    >>> segment = FaissSegment(Path("indexes/sample"), threads=1)
    >>> segment.nearest(index.sentence_vectors[5:6].astype(np.float32), 1).tolist()
    [[5]]
    """

    def __init__(
        self,
        folder: Path,
        threads: int,
        params: AnnParams | None = None,
        nprobe: int | None = None,
        live: NDArray[np.bool_] | None = None,
    ) -> None:
        """Open the FAISS index in a folder, built with ``params``; ``nprobe`` overrides theirs, and ``live``
        (sentences,) says which sentences may be found (None: all).

        Raises IndexFormatError for a damaged index, InputError for one that may not be read, UsageError for
        an ``nprobe`` of an index without lists, MissingDependencyError without FAISS.
        """
        check_package("faiss")
        import faiss

        path = folder / FAISS
        params = params or AnnParams()
        if nprobe is not None and params.kind not in IN_LISTS:
            kinds = ", ".join(IN_LISTS)
            raise UsageError(f"`nprobe` goes with an index of kind {kinds}, found {params.kind}; drop it")
        faiss_settings.set_for_searching(threads)
        # Lists on the disk are looked for beside the index, wherever it was built.
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        try:
            self._index: Any = faiss.read_index(str(path), flags)
            if params.kind in IN_LISTS:
                nprobe = min(nprobe or params.nprobe or 1, params.nlist or 1)
                faiss.extract_index_ivf(self._index).nprobe = nprobe
        except (RuntimeError, AttributeError) as error:
            if path.exists() and not os.access(path, os.R_OK):
                raise input_error(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES))) from error
            raise IndexFormatError(
                f"{path}: expected a FAISS index, found {error}; the index is damaged: build it again"
            ) from error
        self._path, self.params = path, params
        self.sentences: int = self._index.ntotal
        self._findable = self.sentences
        self._sign = -1 if self._index.metric_type == faiss.METRIC_L2 else 1
        self._rotate: Any = None
        self._searched = self._index
        if params.kind == IVF_OPQ_PQ:
            self._rotate = faiss.downcast_VectorTransform(self._index.chain.at(0)).apply
            self._searched = faiss.downcast_index(self._index.index)
        self._parameters: Any = None
        if live is not None:
            self._findable = int(live.sum())
            self._parameters = _only(np.packbits(live, bitorder="little"), nprobe)

    @property
    def min_candidates(self) -> int:
        """Sentences to be looked up for each sentence of a query, at the least."""
        return self.params.min_candidates

    def nearest(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Positions (queries, count) of the nearest sentences, best first; -1 where fewer were found.

        Raises IndexFormatError for positions that the index cannot have.
        """
        return self.search(queries, count)[1]

    def search(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The closeness (queries, count) of the nearest sentences, more being closer, and their positions
        (see `nearest`).
        """
        wanted = min(count if self.params.kind == FLAT else count + 1, self._findable)
        if self._rotate is not None:  # one by one: a matrix product would depend on the other queries
            queries = np.concatenate([self._rotate(row) for row in queries[:, None]])
        with faiss_settings.searching() as most:
            blocks = [
                self._searched.search(queries[first : first + most], wanted, params=self._parameters)
                for first in range(0, max(len(queries), 1), most)
            ]
        distances, positions = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        if positions.max(initial=-1) >= self.sentences:
            raise IndexFormatError(
                f"{self._path}: expected positions below {self.sentences}, found {positions.max()}; the "
                "index is damaged: build it again"
            )
        nearest = nearer(distances, positions, count)
        return self._sign * distances[:, : nearest.shape[1]], nearest


def _only(bits: NDArray[np.uint8], nprobe: int | None) -> Any:
    """Parameters of a search that finds only the positions whose bit is set, in so many lists if any."""
    import faiss

    untyped: Any = faiss  # its stubs know C++'s arguments, not Python's
    selector = untyped.IDSelectorBitmap(bits)
    if nprobe is None:
        return untyped.SearchParameters(sel=selector)
    return untyped.SearchParametersIVF(sel=selector, nprobe=nprobe)


def nearer(distances: NDArray[np.float32], positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The first ``count`` positions (queries, count): of more (queries, more than count) those that are
    nearer than the next one, the rest being -1; all of them where all are as near.

    Short codes often tie, and which of the last ties are found depends on how threads share the work.

    >>> distances = np.array([[0.9, 0.7, 0.7]], np.float32)
    >>> nearer(distances, np.array([[4, 8, 2]]), 2).tolist()
    [[4, -1]]
    """
    if positions.shape[1] <= count:
        return positions
    tied = (distances[:, :count] == distances[:, count, None]) & (positions[:, count, None] >= 0)
    return np.where(tied & ~tied.all(axis=1, keepdims=True), -1, positions[:, :count])
