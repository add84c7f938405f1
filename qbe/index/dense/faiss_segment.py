"""The FAISS index of one segment: which of its sentences are nearest to a query's sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError, check_package
from qbe.index.dense import faiss_settings
from qbe.index.dense.ann import FLAT, HNSW, IN_LISTS, IVF_OPQ_PQ, AnnParams
from qbe.index.dense.lists import LISTS
from qbe.index.openfiles import OpenFiles

FAISS = "faiss.index"


class Findable(NamedTuple):
    """Sentences of a segment that a search may find: how many, and FAISS's selector of them (None: all)."""

    size: int
    selector: Any = None


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
        folder: Path | OpenFiles,
        threads: int,
        params: AnnParams | None = None,
        nprobe: int | None = None,
        live: NDArray[np.bool_] | None = None,
    ) -> None:
        """Open the FAISS index of a segment, or in a folder, built with ``params``; ``nprobe`` overrides
        theirs, and ``live`` (sentences,) says which sentences may be found (None: all).

        Raises IndexFormatError for a damaged index, UsageError for an ``nprobe`` of an index without lists,
        MissingDependencyError without FAISS.
        """
        check_package("faiss")
        import faiss

        self._files = files = OpenFiles.of(folder)
        params = params or AnnParams()
        self._nprobe = 0
        if nprobe is not None and params.kind not in IN_LISTS:
            kinds = ", ".join(IN_LISTS)
            raise UsageError(f"`nprobe` goes with an index of kind {kinds}, found {params.kind}; drop it")
        faiss_settings.set_for_searching(threads)
        # Lists on the disk are looked for beside the index, wherever it was built.
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        with files.linked(FAISS, LISTS) as linked:
            try:
                self._index: Any = faiss.read_index(str(linked / FAISS), flags)
                if params.kind in IN_LISTS:
                    self._nprobe = min(nprobe or params.nprobe or 1, params.nlist or 1)
                    faiss.extract_index_ivf(self._index).nprobe = self._nprobe
            except (RuntimeError, AttributeError, MemoryError) as error:
                reason = str(error).replace(str(linked), str(files.folder))
                raise files.damaged(FAISS, "a FAISS index", reason) from error
        self.params = params
        self.sentences: int = self._index.ntotal
        self._findable = Findable(self.sentences) if live is None else self.findable(live)
        self._sign = -1 if self._index.metric_type == faiss.METRIC_L2 else 1
        self._rotate: Any = None
        self._searched = self._index
        if params.kind == IVF_OPQ_PQ:
            self._rotate = faiss.downcast_VectorTransform(self._index.chain.at(0)).apply
            self._searched = faiss.downcast_index(self._index.index)

    @property
    def min_candidates(self) -> int:
        """Sentences to be looked up for each sentence of a query, at the least."""
        return self.params.min_candidates

    def findable(self, mask: NDArray[np.bool_]) -> Findable:
        """Some sentences (sentences,) in the form that searches take; none of them is a deleted paper's."""
        import faiss

        untyped: Any = faiss  # its stubs know C++'s arguments, not Python's
        bits = np.packbits(mask, bitorder="little")
        return Findable(int(np.count_nonzero(mask)), untyped.IDSelectorBitmap(bits))

    def nearest(
        self, queries: NDArray[np.float32], count: int, among: Findable | None = None, breadth: int = 1
    ) -> NDArray[np.int64]:
        """Positions (queries, count) of the nearest sentences, best first; -1 where fewer were found.

        ``among`` are the sentences that may be found (None: those that the segment was opened with);
        ``breadth`` is how many times the lists are read that are usually. Raises IndexFormatError for
        positions that the index cannot have.
        """
        closeness, positions = self.search(queries, count, among, breadth)
        return nearer(closeness, positions, count)

    def nearest_scored(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """See `qbe.index.dense.faiss_candidates.SentenceSearch.nearest_scored`; a flat index alone tells, by
        similarity.
        """
        if self.params.kind != FLAT or self._sign < 0 or not self._findable.size:
            return None
        return self.search(queries, count)

    def search(
        self, queries: NDArray[np.float32], count: int, among: Findable | None = None, breadth: int = 1
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The closeness of the nearest sentences, more being closer, and their positions (see `nearest`):
        (queries, count) of each, or one more where `nearer` needs it.
        """
        among = among or self._findable
        wanted = min(count if self.params.kind == FLAT else count + 1, among.size)
        if not wanted:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        parameters = self._parameters(among, wanted, breadth)
        if self._rotate is not None:  # one by one: a matrix product would depend on the other queries
            queries = np.concatenate([self._rotate(row) for row in queries[:, None]])
        with faiss_settings.searching() as most:
            blocks = [
                self._searched.search(queries[first : first + most], wanted, params=parameters)
                for first in range(0, max(len(queries), 1), most)
            ]
        distances, positions = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        if positions.max(initial=-1) >= self.sentences:
            raise self._files.damaged(FAISS, f"positions below {self.sentences}", positions.max())
        return self._sign * distances, positions

    def _parameters(self, among: Findable, wanted: int, breadth: int) -> Any:
        """FAISS's parameters of a search; None: those of the index.

        HNSW visits as many vectors as it is to compare, of which only those that may be found count: the
        fewer these are, the more it is given to compare.
        """
        import faiss

        if among.selector is None and breadth == 1:
            return None
        untyped: Any = faiss  # its stubs know C++'s arguments, not Python's
        if self.params.kind in IN_LISTS:
            nprobe = min(self._nprobe * breadth, self.params.nlist or 1)
            return untyped.SearchParametersIVF(sel=among.selector, nprobe=nprobe)
        if self.params.kind == HNSW:
            compared = min(wanted * self.sentences // among.size, self.sentences)
            return untyped.SearchParametersHNSW(sel=among.selector, efSearch=compared)
        return untyped.SearchParameters(sel=among.selector)


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
