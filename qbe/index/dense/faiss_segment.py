"""The FAISS index of one segment: which of its sentences are nearest to a query's sentences."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError, check_package
from qbe.index.dense.ann import FaissParams
from qbe.index.rows import Rows, starts_of
from qbe.index.store import Files

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


def read_index(path: Path, flags: int) -> Any:
    """FAISS's index of a file; counts in it that its size does not bear out allocate nothing.

    Raises RuntimeError.
    """
    import faiss

    untyped: Any = faiss
    with _reading:
        before = untyped.get_deserialization_vector_byte_limit()
        untyped.set_deserialization_vector_byte_limit(path.stat().st_size)
        try:
            return faiss.read_index(str(path), flags)
        finally:
            untyped.set_deserialization_vector_byte_limit(before)


_reading = threading.Lock()


class FaissSegment:
    """Nearest sentences of a segment by its own similarity, among all its sentences or those of papers that
    are not deleted.

    >>> segment = FaissSegment(Path("indexes/sample"), threads=1)
    >>> segment.search(index.sentence_vectors[5:6].astype(np.float32), 1)[1].tolist()
    [[5]]
    """

    def __init__(
        self,
        folder: Path | Files,
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

        self._files = files = Files.of(folder)
        self.params = params = params or FaissParams()
        self._nprobe = 0
        if nprobe is not None and params.nlist is None:
            raise UsageError(f"`nprobe` goes with an index of lists, found {params.factory}; drop it")
        set_for_searching(threads)
        # Lists on the disk are looked for in the index's folder, wherever it was built.
        flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        if not params.factory.endswith(
            "fs"
        ):  # such codes are copied; others are mapped, and processes share them
            flags |= faiss.IO_FLAG_MMAP_IFC
        path = files.path(FAISS)
        try:
            self._index: Any = read_index(path, flags)
            if params.nlist is not None:
                self._nprobe = min(nprobe or params.nprobe or 1, params.nlist)
                faiss.extract_index_ivf(self._index).nprobe = self._nprobe
        except (RuntimeError, AttributeError, MemoryError, OSError) as error:
            raise files.damaged(FAISS, "a FAISS index", " ".join(str(error).split())) from error
        files.check()
        self._searched = searched(self._index)
        if self._searched is None:
            raise files.damaged(FAISS, f"a FAISS index {params.factory}", type(self._index).__name__)
        self.sentences: int = self._index.ntotal
        self._eligible = SentenceSelection(self.sentences) if live is None else self.select(live)
        of_products = self._index.metric_type == faiss.METRIC_INNER_PRODUCT
        self.gives_similarities = params.is_exact and of_products and self._eligible.size > 0
        self._sign = 1 if of_products else -1
        self._transformations: list[Any] = []
        if isinstance(self._index, faiss.IndexPreTransform):
            chain = self._index.chain
            places = range(chain.size())
            self._transformations = [faiss.downcast_VectorTransform(chain.at(n)).apply for n in places]

    def select(self, mask: NDArray[np.bool_]) -> SentenceSelection:
        """Some sentences (sentences,) in the form that searches take; none of them is a deleted paper's."""
        import faiss

        untyped: Any = faiss  # its stubs know C++'s arguments, not Python's
        bits = np.packbits(mask, bitorder="little")
        return SentenceSelection(int(np.count_nonzero(mask)), untyped.IDSelectorBitmap(bits))

    def search(
        self,
        queries: NDArray[np.float32],
        count: int,
        allowed: SentenceSelection | None = None,
        breadth: int = 1,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The closeness of the nearest sentences, best first, more being closer, and their positions; -1
        where there are fewer: (queries, count) of each, or one more where `nearer` needs it.

        ``allowed`` restricts retrieval to these sentences (None: those that the segment was opened with);
        ``breadth`` is how many times the usual number of lists is read. Raises IndexFormatError for positions
        that the index cannot have.
        """
        allowed = allowed or self._eligible
        count = min(count if self.params.is_exact else count + 1, allowed.size)
        if not count:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        parameters = self._parameters(allowed, count, breadth)
        for transform in self._transformations:  # one by one: matrix products depend on the other queries
            queries = np.concatenate([transform(row) for row in queries[:, None]])
        with searching() as most:
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


class FaissSegments:
    """Nearest sentences over FAISS indexes, one or more (`qbe.index.dense.faiss_candidates.SentenceSearch`).

    >>> both = FaissSegments([FaissSegment(index.folder, 1), FaissSegment(index.folder, 1)])
    >>> both.nearest(index.sentence_vectors[5:6].astype(np.float32), 2).tolist()
    [[5, 599]]
    """

    def __init__(self, segments: Sequence[FaissSegment], starts: Sequence[int] | None = None) -> None:
        """``starts`` (segments,) are the positions of their first sentences; None: they follow each other."""
        self._segments = segments
        self._ends = starts_of([segment.sentences for segment in segments])[1:]
        self._starts = [0, *self._ends[:-1].tolist()] if starts is None else list(starts)

    @property
    def min_candidates(self) -> int:
        """At least this many sentences are looked up for each sentence of a query."""
        return max(segment.params.min_candidates for segment in self._segments)

    def select(self, mask: NDArray[np.bool_]) -> list[SentenceSelection]:
        """Some sentences (sentences,) of all segments in the form that searches take, one for each."""
        parts = np.split(mask, self._ends[:-1])
        return [segment.select(part) for segment, part in zip(self._segments, parts, strict=True)]

    def nearest_scored(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """See `qbe.index.dense.faiss_candidates.SentenceSearch.nearest_scored`: one exact index tells, by
        inner products; of several the kinds may differ.
        """
        if len(self._segments) > 1 or not self._segments[0].gives_similarities:
            return None
        return self._segments[0].search(queries, count)

    def nearest(
        self,
        queries: NDArray[np.float32],
        count: int,
        allowed: Sequence[SentenceSelection] | None = None,
        breadth: int = 1,
    ) -> Rows:
        """Positions (queries, up to 2 * count) of the nearest sentences; -1 where fewer were found.

        First come those of the segments that FAISS compares by their stored vectors, best first, of equals
        the first; then likewise those of segments that it compares by short codes, which make vectors seem
        farther than they are, and so must not compete with the others for places. ``allowed`` and ``breadth``
        are those of `FaissSegment.search`, the former for each segment.
        """
        return nearest_of(self.search(queries, count, allowed, breadth), count)

    def search(
        self,
        queries: NDArray[np.float32],
        count: int,
        allowed: Sequence[SentenceSelection] | None = None,
        breadth: int = 1,
    ) -> list[Nearest]:
        """What `nearest` chooses from: the results of each segment."""
        selections = [None] * len(self._segments) if allowed is None else allowed
        results = []
        for segment, start, selection in zip(self._segments, self._starts, selections, strict=True):
            closeness, near = segment.search(queries, count, selection, breadth)
            by_codes = segment.params.by_codes
            results.append(Nearest(by_codes, closeness, np.where(near < 0, -1, near + start)))
        return results


class Nearest(NamedTuple):
    """What one search gave: whether it compares short codes, and the ``closeness`` (queries, m), more being
    closer, and ``positions`` (queries, m) int64 of the nearest sentences; -1 where fewer were found.
    """

    by_codes: bool
    closeness: NDArray[np.float32]
    positions: Rows


def nearest_of(results: Sequence[Nearest], count: int) -> Rows:
    """Positions (queries, up to 2 * count) of the nearest sentences of several searches; see
    `FaissSegments.nearest`.

    Of sentences compared by codes that are as near as the first one left out none is kept (see
    `qbe.index.dense.faiss_segment.nearer`), so that indexes that share their centroids and codes give what
    one index of all would.

    >>> close, near = np.array([[0.9, 0.5]], np.float32), np.array([[3, 4]])
    >>> nearest_of([Nearest(True, close, near), Nearest(True, close, near + 10)], 3).tolist()
    [[3, 13, -1]]
    """
    groups = [[each for each in results if each.by_codes == by_codes] for by_codes in (False, True)]
    return np.concatenate([_best(group, count) for group in groups if group], axis=1)


def _best(results: Sequence[Nearest], count: int) -> Rows:
    """The nearest of some searches together, best first, of equals the first."""
    by_codes, closeness, positions = results[0]
    if len(results) == 1:
        return nearer(closeness, positions, count)
    positions = np.concatenate([each.positions for each in results], axis=1)
    closeness = np.concatenate([each.closeness for each in results], axis=1)
    closeness = np.where(positions < 0, -np.inf, closeness).astype(np.float32)
    best = np.lexsort((positions, -closeness), axis=1)[:, : count + 1 if by_codes else count]
    return nearer(
        np.take_along_axis(closeness, best, axis=1), np.take_along_axis(positions, best, axis=1), count
    )


ONE_BY_ONE = 2**31 - 1
"""Query vectors from which on FAISS uses matrix products when it searches: never."""

TOGETHER = 20
"""Vectors from which on FAISS uses matrix products when it builds (its own default)."""

_state = threading.Condition()
_unlimited = _builds = 0


def set_for_searching(threads: int) -> None:
    """Have FAISS search with this many threads, comparing vectors one by one; for whoever opens an index."""
    import faiss

    faiss.omp_set_num_threads(threads)
    with _state:
        if not _builds:
            faiss.cvar.distance_compute_blas_threshold = ONE_BY_ONE


@contextmanager
def searching() -> Iterator[int]:
    """A context for one search of FAISS; gives how many query vectors it may take at a time.

    While an index is built in the same process these are so few that FAISS compares them one by one, so that
    the results are those of any other time.

    >>> with searching() as most:
    ...     most == ONE_BY_ONE
    True
    """
    global _unlimited
    with _state:
        limited = _builds > 0
        _unlimited += not limited
    try:
        yield TOGETHER - 1 if limited else ONE_BY_ONE
    finally:
        with _state:
            _unlimited -= not limited
            _state.notify_all()


@contextmanager
def building(threads: int) -> Iterator[None]:
    """A context for work that builds a FAISS index with this many threads; afterwards the settings are
    those of searching.

    Searches under way are waited for; those that begin meanwhile are neither delayed nor waited for, since
    they take few query vectors at a time (see `searching`).

    >>> with building(threads=1), searching() as most:
    ...     most
    19
    """
    global _builds
    import faiss

    before = faiss.omp_get_max_threads()
    with _state:
        _builds += 1
    try:
        with _state:
            _state.wait_for(lambda: not _unlimited)
            faiss.cvar.distance_compute_blas_threshold = TOGETHER
        faiss.omp_set_num_threads(threads)
        yield
    finally:
        faiss.omp_set_num_threads(before)
        with _state:
            _builds -= 1
            if not _builds:
                faiss.cvar.distance_compute_blas_threshold = ONE_BY_ONE
