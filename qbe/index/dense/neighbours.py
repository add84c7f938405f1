"""Searching the FAISS side of an index: which sentences lie closest to a query's sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, UsageError
from qbe.index.dense.ann import FLAT, IN_LISTS, IVF_OPQ_PQ, AnnParams

FAISS = "faiss.index"

ONE_BY_ONE = 2**31 - 1
"""Vectors from which on FAISS compares them with centroids by matrix products when it searches: never, since
results must not depend on what else is asked for."""


class Neighbours:
    """Nearest sentences by the index's own similarity, over all its sentences, or the live ones."""

    def __init__(
        self,
        folder: Path,
        threads: int,
        plan: AnnParams | None = None,
        nprobe: int | None = None,
        live: NDArray[np.bool_] | None = None,
    ) -> None:
        """Open the index in a folder, built by ``plan``; ``nprobe`` takes the place of the plan's, and
        ``live`` (sentences,) says which sentences may be found (None: all).

        Raises IndexFormatError for a damaged index, UsageError for an ``nprobe`` of an index without lists.
        """
        import faiss

        path = folder / FAISS
        plan = plan or AnnParams()
        if nprobe is not None and plan.kind not in IN_LISTS:
            raise UsageError(f"--nprobe goes with an index of kind {', '.join(IN_LISTS)}, found {plan.kind}")
        faiss.omp_set_num_threads(threads)
        # Lists on the disk are looked for beside the index, wherever it was built.
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        try:
            self._index: Any = faiss.read_index(str(path), flags)
            if plan.kind in IN_LISTS:
                nprobe = min(nprobe or plan.nprobe or 1, plan.nlist or 1)
                faiss.extract_index_ivf(self._index).nprobe = nprobe
        except (RuntimeError, AttributeError) as error:
            raise IndexFormatError(
                f"{path}: expected a FAISS index, found {error}; the index is damaged: build it again"
            ) from error
        self._path, self.plan = path, plan
        self.sentences: int = self._index.ntotal
        self._findable = self.sentences
        self._sign = -1 if self._index.metric_type == faiss.METRIC_L2 else 1
        self._rotate: Any = None
        self._searched = self._index
        if plan.kind == IVF_OPQ_PQ:
            self._rotate = faiss.downcast_VectorTransform(self._index.chain.at(0)).apply
            self._searched = faiss.downcast_index(self._index.index)
        self._parameters: Any = None
        if live is not None:
            self._findable = int(live.sum())
            self._parameters = _only(np.packbits(live, bitorder="little"), nprobe)

    @property
    def depth(self) -> int:
        """Sentences to be brought for each sentence of a query, at the least."""
        return self.plan.depth

    def nearest(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Positions (queries, count) of the nearest sentences, best first; -1 where fewer were found.

        Raises IndexFormatError for positions that the index cannot have.
        """
        return self.search(queries, count)[1]

    def search(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What `nearest` says, behind the closeness of each (more is closer)."""
        import faiss

        faiss.cvar.distance_compute_blas_threshold = ONE_BY_ONE
        wanted = count if self.plan.kind == FLAT else count + 1
        if self._rotate is not None:  # one at a time, for the same reason
            queries = np.concatenate([self._rotate(row) for row in queries[:, None]])
        distances, positions = self._searched.search(
            queries, min(wanted, self._findable), params=self._parameters
        )
        if positions.max(initial=-1) >= self.sentences:
            raise IndexFormatError(
                f"{self._path}: expected positions below {self.sentences}, found {positions.max()}; the "
                "index is damaged: build it again"
            )
        found = nearer(distances, positions, count)
        return self._sign * distances[:, : found.shape[1]], found


def _only(bits: NDArray[np.uint8], nprobe: int | None) -> Any:
    """Parameters of a search that finds only the positions whose bit is set, in so many lists if any."""
    import faiss

    found: Any = faiss  # its stubs know C++'s arguments, not Python's
    selector = found.IDSelectorBitmap(bits)
    if nprobe is None:
        return found.SearchParameters(sel=selector)
    return found.SearchParametersIVF(sel=selector, nprobe=nprobe)


def nearer(distances: NDArray[np.float32], positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The first ``count`` positions (queries, count): of more (queries, more than count) those that are
    nearer than the next one, the rest being -1; all of them where all are as near.

    Short codes often tie, and which of the last ties are found depends on how threads share the work.
    """
    if positions.shape[1] <= count:
        return positions
    tied = (distances[:, :count] == distances[:, count, None]) & (positions[:, count, None] >= 0)
    return np.where(tied & ~tied.all(axis=1, keepdims=True), -1, positions[:, :count])
