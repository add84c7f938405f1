"""Rows of papers and of their sentences, and papers selected by them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def run_starts(ordered: NDArray[Any]) -> Rows:
    """Where each run of equal values of an array (n,) begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])


def distinct(values: NDArray[Any]) -> Rows:
    """Return the sorted unique values of an array (n,); ``np.unique`` would load masked arrays."""
    ordered: Rows = np.sort(values)
    return ordered[run_starts(ordered)]


def sentence_rows(starts: Rows, papers: Rows) -> Rows:
    """Return the rows of all sentences of some papers, paper after paper; ``starts`` is (all papers + 1,)."""
    begins = block_starts(starts, papers)
    counts = starts[papers + 1] - starts[papers]
    rows: Rows = np.arange(counts.sum()) + np.repeat(starts[papers] - begins, counts)
    return rows


def block_starts(starts: Rows, papers: Rows) -> Rows:
    """Return the offset of each paper's first sentence (n,) in the gathered block."""
    counts = starts[papers + 1] - starts[papers]
    begins: Rows = np.cumsum(counts) - counts
    return begins


T = TypeVar("T")

Mask = NDArray[np.bool_]


class Selection:
    """Some papers of an index, by row: ``mask`` (papers,) says which. No two selections are equal."""

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
        """Return which sentences (sentences,) its papers have; ``starts`` is (papers + 1,)."""
        return np.repeat(self.mask, np.diff(starts))


class PerSelection(Generic[T]):
    """Cache a result by selection for as long as the selection lives; threads may share it."""

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
