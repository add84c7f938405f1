"""Some papers of an index, to which a search is restricted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from qbe.index.rows import Rows

T = TypeVar("T")

Mask = NDArray[np.bool_]


class Selection:
    """Some papers of one commit of an index, by row; deleted papers are never among them.

    Two selections are never equal, whatever they hold, so that what is made of one is found by it again (see
    `PerSelection`). ``mask`` (papers,) says of each row whether its paper is selected.

    >>> selection = Selection(np.array([True, False, True]))
    >>> len(selection), selection.rows.tolist(), selection.sentences(np.array([0, 2, 5, 6])).tolist()
    (2, [0, 2], [True, True, False, False, False, True])
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
    """What is made of a selection, made once and kept as long as the selection lives; threads may share it.

    >>> counts, selection = PerSelection(len), Selection(np.array([True, False, True]))
    >>> counts(selection), counts(selection)
    (2, 2)
    """

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
