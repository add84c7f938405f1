"""The FAISS index of one segment: which of its sentences are nearest to a query's sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError, check_package
from qbe.index.dense import faiss_settings
from qbe.index.dense.ann import FaissParams
from qbe.index.openfiles import OpenFiles

FAISS = "faiss.index"
LISTS = "faiss.lists"
"""The lists of an index of qbe 0.8 or before that keeps them on the disk, in a file of their own."""


class SentenceSelection(NamedTuple):
    """Sentences of a segment that are eligible for retrieval: how many, and FAISS's selector of them (None:
    all).
    """

    size: int
    selector: Any = None


def searched(index: Any) -> Any:
    """The part of a FAISS index that is searched, of a kind that can search selected vectors; None where
    there is none. Vectors may be transformed before.
    """
    import faiss

    if isinstance(index, faiss.IndexPreTransform):
        index = faiss.downcast_index(index.index)
    kinds: Any = (faiss.IndexIVF, faiss.IndexHNSW, faiss.IndexFlatCodes)
    return index if isinstance(index, kinds) else None


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
        params: FaissParams | None = None,
        nprobe: int | None = None,
        live: NDArray[np.bool_] | None = None,
    ) -> None:
        """Open the FAISS index of a segment, or in a folder, built with ``params``; ``nprobe`` overrides
        theirs, and ``live`` (sentences,) says which sentences are eligible (None: all).

        Raises IndexFormatError for a damaged index, UsageError for an ``nprobe`` of an index without lists,
        MissingDependencyError without FAISS.
        """
        check_package("faiss")
        import faiss

        self._files = files = OpenFiles.of(folder)
        self.params = params = params or FaissParams()
        self._nprobe = 0
        if nprobe is not None and params.nlist is None:
            raise UsageError(f"`nprobe` goes with an index of lists, found {params.factory}; drop it")
        faiss_settings.set_for_searching(threads)
        # Lists on the disk are looked for in the index's folder, wherever it was built.
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        with files.linked(FAISS, LISTS) as linked:
            try:
                self._index: Any = faiss.read_index(str(linked / FAISS), flags)
                if params.nlist is not None:
                    self._nprobe = min(nprobe or params.nprobe or 1, params.nlist)
                    faiss.extract_index_ivf(self._index).nprobe = self._nprobe
            except (RuntimeError, AttributeError, MemoryError) as error:
                reason = str(error).replace(str(linked), str(files.folder))
                raise files.damaged(FAISS, "a FAISS index", reason) from error
        self._searched = searched(self._index)
        if self._searched is None:
            raise files.damaged(FAISS, f"a FAISS index {params.factory}", type(self._index).__name__)
        self.sentences: int = self._index.ntotal
        self._eligible = SentenceSelection(self.sentences) if live is None else self.select(live)
        self._sign = -1 if self._index.metric_type == faiss.METRIC_L2 else 1
        self._transformations: list[Any] = []
        if isinstance(self._index, faiss.IndexPreTransform):
            chain = self._index.chain
            places = range(chain.size())
            self._transformations = [faiss.downcast_VectorTransform(chain.at(n)).apply for n in places]

    @property
    def min_candidates(self) -> int:
        """At least this many sentences are looked up for each sentence of a query."""
        return self.params.min_candidates

    def select(self, mask: NDArray[np.bool_]) -> SentenceSelection:
        """Some sentences (sentences,) in the form that searches take; none of them is a deleted paper's."""
        import faiss

        untyped: Any = faiss  # its stubs know C++'s arguments, not Python's
        bits = np.packbits(mask, bitorder="little")
        return SentenceSelection(int(np.count_nonzero(mask)), untyped.IDSelectorBitmap(bits))

    def nearest(
        self,
        queries: NDArray[np.float32],
        count: int,
        allowed: SentenceSelection | None = None,
        breadth: int = 1,
    ) -> NDArray[np.int64]:
        """Positions (queries, count) of the nearest sentences, best first; -1 where there are fewer.

        ``allowed`` restricts retrieval to these sentences (None: those that the segment was opened with);
        ``breadth`` is how many times the usual number of lists is read. Raises IndexFormatError for positions
        that the index cannot have.
        """
        closeness, positions = self.search(queries, count, allowed, breadth)
        return nearer(closeness, positions, count)

    def nearest_scored(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """See `qbe.index.dense.faiss_candidates.SentenceSearch.nearest_scored`; an exact index tells,
        by similarity.
        """
        if not self.params.is_exact or self._sign < 0 or not self._eligible.size:
            return None
        return self.search(queries, count)

    def search(
        self,
        queries: NDArray[np.float32],
        count: int,
        allowed: SentenceSelection | None = None,
        breadth: int = 1,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The closeness of the nearest sentences, more being closer, and their positions (see `nearest`):
        (queries, count) of each, or one more where `nearer` needs it.
        """
        allowed = allowed or self._eligible
        count = min(count if self.params.is_exact else count + 1, allowed.size)
        if not count:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        parameters = self._parameters(allowed, count, breadth)
        for transform in self._transformations:  # one by one: matrix products depend on the other queries
            queries = np.concatenate([transform(row) for row in queries[:, None]])
        with faiss_settings.searching() as most:
            blocks = [
                self._searched.search(queries[first : first + most], count, params=parameters)
                for first in range(0, max(len(queries), 1), most)
            ]
        distances, positions = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        if positions.max(initial=-1) >= self.sentences:
            raise self._files.damaged(FAISS, f"positions below {self.sentences}", positions.max())
        return self._sign * distances, positions

    def _parameters(self, allowed: SentenceSelection, count: int, breadth: int) -> Any:
        """FAISS's parameters of a search; None: those of the index.

        HNSW visits as many vectors as it is to compare, of which only eligible ones count: the fewer these
        are, the more it is given to compare.
        """
        import faiss

        if allowed.selector is None and breadth == 1:
            return None
        untyped: Any = faiss  # its stubs know C++'s arguments, not Python's
        if self.params.nlist is not None:
            nprobe = min(self._nprobe * breadth, self.params.nlist)
            return untyped.SearchParametersIVF(sel=allowed.selector, nprobe=nprobe)
        if isinstance(self._searched, faiss.IndexHNSW):
            compared = min(count * self.sentences // allowed.size, self.sentences)
            return untyped.SearchParametersHNSW(sel=allowed.selector, efSearch=compared)
        return untyped.SearchParameters(sel=allowed.selector)


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
