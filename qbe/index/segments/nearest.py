"""The FAISS side of an index opened for searching, over one segment or several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.ann import IN_LISTS, AnnParams
from qbe.index.dense.neighbours import Neighbours
from qbe.index.papers import STARTS_FILE
from qbe.index.rows import starts_of
from qbe.index.segments.snapshot import OpenSegment


class NeighbourParts:
    """Nearest sentences over several FAISS indexes (see `qbe.index.dense.neighbours.Neighbours`)."""

    def __init__(self, parts: Sequence[Neighbours]) -> None:
        self._parts = parts
        self._starts = starts_of([part.sentences for part in parts])

    @property
    def depth(self) -> int:
        """Sentences to be brought for each sentence of a query, at the least."""
        return max(part.plan.depth for part in self._parts)

    def nearest(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Positions (queries, up to 2 * count) of the nearest sentences; -1 where fewer were found.

        Best first, of equals the first, are those of the segments that FAISS compares by their stored
        vectors; then likewise those of segments that it compares by short codes, which make vectors seem
        farther than they are, and so must not compete with the others for places.
        """
        groups = [
            [number for number, part in enumerate(self._parts) if (part.plan.kind in IN_LISTS) == coded]
            for coded in (False, True)
        ]
        return np.concatenate([self._best(group, queries, count) for group in groups if group], axis=1)

    def _best(self, group: Sequence[int], queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """The nearest of some segments together."""
        found = [(*self._parts[number].search(queries, count), self._starts[number]) for number in group]
        closeness = np.concatenate([np.where(near < 0, -np.inf, close) for close, near, _ in found], axis=1)
        positions = np.concatenate([np.where(near < 0, -1, near + start) for _, near, start in found], axis=1)
        best = np.lexsort((positions, -closeness), axis=1)[:, :count]
        nearest: NDArray[np.int64] = np.take_along_axis(positions, best, axis=1)
        return nearest


def open_neighbours(
    parts: Sequence[OpenSegment], threads: int, nprobe: int | None = None
) -> Neighbours | NeighbourParts:
    """The FAISS side of an index; sentences of dead papers are never found.

    ``nprobe`` takes the place of the plans' own where there are lists. Raises UsageError where there are none
    at all, IndexFormatError where a FAISS index is damaged.
    """
    plans = [AnnParams.read(part.manifest.dense or {}) for part in parts]
    lists = any(plan.kind in IN_LISTS for plan in plans)
    opened = [
        Neighbours(
            part.path,
            threads,
            plan,
            nprobe if plan.kind in IN_LISTS or not lists else None,
            _live_sentences(part),
        )
        for part, plan in zip(parts, plans, strict=True)
    ]
    return opened[0] if len(opened) == 1 else NeighbourParts(opened)


def _live_sentences(part: OpenSegment) -> NDArray[np.bool_] | None:
    """Which sentences (sentences,) of a segment belong to papers that are not dead; None: all of them."""
    if not len(part.dead):
        return None
    alive = np.ones(part.papers, np.bool_)
    alive[part.dead] = False
    return np.repeat(alive, np.diff(np.load(part.path / STARTS_FILE)))
