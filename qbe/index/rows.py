"""Rows of several parts laid end to end: where each part begins, and arrays read across them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class RowsOfPart(NamedTuple):
    """The rows of one part among some rows: their ``places`` there, and the ``rows`` within the part."""

    part: int
    places: Rows
    rows: Rows


def starts_of(counts: Sequence[int]) -> Rows:
    """Where parts of these sizes begin, (parts + 1,) int64."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def run_starts(ordered: NDArray[Any]) -> Rows:
    """Where each run of equal values of an array (n,) begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])


def distinct(values: NDArray[Any]) -> Rows:
    """The values of an array (n,), ascending, each once, without loading masked arrays as ``np.unique`` does."""
    ordered: Rows = np.sort(values)
    return ordered[run_starts(ordered)]


def shares(rows: Rows, starts: Rows) -> Iterator[RowsOfPart]:
    """Which parts rows (n,) in any order belong to, where parts begin at ``starts`` (see `starts_of`).

    >>> [(share.part, share.rows.tolist()) for share in shares(np.array([4, 0, 3]), starts_of([3, 2]))]
    [(0, [0]), (1, [1, 0])]
    """
    owners = np.searchsorted(starts, rows, side="right") - 1
    for part in distinct(owners).tolist():
        places = np.flatnonzero(owners == part)
        yield RowsOfPart(part, places, rows[places] - starts[part])


def sentence_rows(starts: Rows, papers: Rows) -> Rows:
    """The rows of all sentences of some papers, paper after paper, where ``starts`` (all papers + 1,) is the
    layout of `qbe.index.papers.PaperLayout`.

    >>> sentence_rows(np.array([0, 2, 3, 6]), np.array([2, 0])).tolist()
    [3, 4, 5, 0, 1]
    """
    begins = block_starts(starts, papers)
    counts = starts[papers + 1] - starts[papers]
    rows: Rows = np.arange(counts.sum()) + np.repeat(starts[papers] - begins, counts)
    return rows


def block_starts(starts: Rows, papers: Rows) -> Rows:
    """Where the sentences of each of some papers (n,) begin once they are concatenated in that order, (n,)."""
    counts = starts[papers + 1] - starts[papers]
    begins: Rows = np.cumsum(counts) - counts
    return begins


class StackedRows:
    """Arrays of one row shape, such as memory maps, read as if they were one, without copying them.

    An array needs no more than ``shape``, ``dtype`` and rows by number, slice, or array of numbers, which
    numpy can make an array of. Of several types the result has one that holds all their numbers.

    >>> stacked = StackedRows([np.array([[1, 2], [3, 4]]), np.array([[5, 6]])])
    >>> stacked.shape, stacked[np.array([2, 0])].tolist()
    ((3, 2), [[5, 6], [1, 2]])
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        """``arrays`` must agree in all but type and number of rows."""
        self._arrays = arrays
        self._starts = starts_of([array.shape[0] for array in arrays])
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *arrays[0].shape[1:])
        self.dtype: np.dtype[Any] = np.result_type(*(array.dtype for array in arrays))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: int | np.integer[Any] | slice | Rows) -> Any:
        """Rows by number, by slice (within one array those of that array, not copied), or by an array of
        numbers, from 0.
        """
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            part = int(np.searchsorted(self._starts, first, side="right")) - 1
            if step == 1 and first < last <= self._starts[part + 1]:
                begin = self._starts[part]
                return self._arrays[part][first - begin : last - begin]
            return self._gather(np.arange(first, last, step))
        rows = np.asarray(key)
        return self._gather(rows.ravel()).reshape(*rows.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All rows as one array, which is a copy."""
        if copy is False:
            raise ValueError("several arrays cannot be one without copying them")
        return self.astype(dtype or self.dtype)

    def astype(self, dtype: Any) -> NDArray[Any]:
        """All rows as one array of a type, which is a copy."""
        return self._gather(np.arange(len(self))).astype(dtype, copy=False)

    def _gather(self, rows: Rows) -> NDArray[Any]:
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"expected rows from 0 to {len(self) - 1}, found {rows.min()} to {rows.max()}")
        gathered = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for share in shares(rows, self._starts):
            gathered[share.places] = self._arrays[share.part][share.rows]
        return gathered


T = TypeVar("T")

Mask = NDArray[np.bool_]


class Selection:
    """Some papers of an index, by row: ``mask`` (papers,) says which. No two selections are equal, so that
    what is made of one is found by it again (see `PerSelection`).
    """

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self._count = int(np.count_nonzero(mask))

    def __len__(self) -> int:
        return self._count

    @cached_property
    def rows(self) -> Rows:
        """The rows of its papers, ascending; not to be written to."""
        rows = np.flatnonzero(self.mask)
        rows.flags.writeable = False
        return rows

    def sentences(self, starts: Rows) -> Mask:
        """Which sentences (sentences,) its papers have, where those of paper i are from ``starts[i]`` to
        ``starts[i + 1]``.
        """
        return np.repeat(self.mask, np.diff(starts))


class PerSelection(Generic[T]):
    """What is made of a selection, made once and kept as long as the selection lives; threads may share it."""

    def __init__(self, make: Callable[[Selection], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: WeakKeyDictionary[Selection, T] = WeakKeyDictionary()

    def __call__(self, selection: Selection) -> T:
        """What the function makes of a selection; other threads wait meanwhile."""
        with self._lock:
            if selection not in self._made:
                self._made[selection] = self._make(selection)
            return self._made[selection]
