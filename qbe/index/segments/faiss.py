"""Candidates from the FAISS indexes of an index's segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.dense.ann import IN_LISTS, AnnParams
from qbe.index.dense.faiss_candidates import FaissCandidates
from qbe.index.dense.faiss_segment import FaissSegment, Findable
from qbe.index.papers import STARTS_FILE
from qbe.index.rows import Rows, starts_of
from qbe.index.segments.snapshot import OpenSegment


class FaissSegments:
    """Nearest sentences over several FAISS indexes (a `qbe.index.dense.faiss_candidates.SentenceSearch`).

    >>> both = FaissSegments([FaissSegment(index.folder, 1), FaissSegment(index.folder, 1)])
    >>> both.nearest(index.sentence_vectors[5:6].astype(np.float32), 2).tolist()
    [[5, 599]]
    """

    def __init__(self, segments: Sequence[FaissSegment]) -> None:
        self._segments = segments
        self._starts = starts_of([segment.sentences for segment in segments])

    @property
    def min_candidates(self) -> int:
        """Sentences to be looked up for each sentence of a query, at the least."""
        return max(segment.min_candidates for segment in self._segments)

    def findable(self, mask: NDArray[np.bool_]) -> list[Findable]:
        """Some sentences (sentences,) of all segments in the form that searches take, one for each."""
        parts = np.split(mask, self._starts[1:-1])
        return [segment.findable(part) for segment, part in zip(self._segments, parts, strict=True)]

    def nearest(
        self,
        queries: NDArray[np.float32],
        count: int,
        among: Sequence[Findable] | None = None,
        breadth: int = 1,
    ) -> Rows:
        """Positions (queries, up to 2 * count) of the nearest sentences; -1 where fewer were found.

        First come those of the segments that FAISS compares by their stored vectors, best first, of equals
        the first; then likewise those of segments that it compares by short codes, which make vectors seem
        farther than they are, and so must not compete with the others for places. ``among`` and ``breadth``
        are those of `FaissSegment.nearest`, the former for each segment.
        """
        groups = [
            [
                number
                for number, segment in enumerate(self._segments)
                if (segment.params.kind in IN_LISTS) == by_codes
            ]
            for by_codes in (False, True)
        ]
        each: Sequence[Findable | None] = [None] * len(self._segments) if among is None else among
        return np.concatenate(
            [self._best(group, queries, count, each, breadth) for group in groups if group], axis=1
        )

    def _best(
        self,
        group: Sequence[int],
        queries: NDArray[np.float32],
        count: int,
        among: Sequence[Findable | None],
        breadth: int,
    ) -> Rows:
        """The nearest of some segments together."""
        results = [
            (*self._segments[number].search(queries, count, among[number], breadth), self._starts[number])
            for number in group
        ]
        closeness = np.concatenate([np.where(near < 0, -np.inf, close) for close, near, _ in results], axis=1)
        positions = np.concatenate(
            [np.where(near < 0, -1, near + start) for _, near, start in results], axis=1
        )
        best = np.lexsort((positions, -closeness), axis=1)[:, :count]
        nearest: Rows = np.take_along_axis(positions, best, axis=1)
        return nearest


def open_candidates(
    segments: Sequence[OpenSegment], starts: Rows, threads: int, nprobe: int | None = None
) -> FaissCandidates:
    """The candidate source of an index, where ``starts`` (papers + 1,) says where each paper's sentences
    begin; sentences of dead papers are never found.

    ``nprobe`` overrides the segments' own where there are lists. Raises UsageError for an ``nprobe`` below 1
    or where there are no lists at all, IndexFormatError where a FAISS index is damaged.
    """
    if nprobe is not None and nprobe < 1:
        raise UsageError(f"expected `nprobe` of at least 1, found {nprobe}")
    params = [AnnParams.read(segment.manifest.dense or {}) for segment in segments]
    any_lists = any(each.kind in IN_LISTS for each in params)
    opened = [
        FaissSegment(
            segment.path,
            threads,
            each,
            nprobe if each.kind in IN_LISTS or not any_lists else None,
            _live_sentences(segment),
        )
        for segment, each in zip(segments, params, strict=True)
    ]
    return FaissCandidates(opened[0] if len(opened) == 1 else FaissSegments(opened), starts)


def _live_sentences(segment: OpenSegment) -> NDArray[np.bool_] | None:
    """Which sentences (sentences,) of a segment belong to papers that are not dead; None: all of them."""
    if not len(segment.dead):
        return None
    alive = np.ones(segment.papers, np.bool_)
    alive[segment.dead] = False
    return np.repeat(alive, np.diff(np.load(segment.path / STARTS_FILE)))
