"""Candidates from the FAISS indexes of an index's segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.dense.ann import FaissParams
from qbe.index.dense.faiss_candidates import FaissCandidates
from qbe.index.dense.faiss_segment import FaissSegment, SentenceSelection, nearer
from qbe.index.papers import STARTS_FILE
from qbe.index.rows import Rows, starts_of
from qbe.index.segments.snapshot import OpenSegment


class FaissSegments:
    """Nearest sentences over several FAISS indexes (a `qbe.index.dense.faiss_candidates.SentenceSearch`).

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
        return max(segment.min_candidates for segment in self._segments)

    def select(self, mask: NDArray[np.bool_]) -> list[SentenceSelection]:
        """Some sentences (sentences,) of all segments in the form that searches take, one for each."""
        parts = np.split(mask, self._ends[:-1])
        return [segment.select(part) for segment, part in zip(self._segments, parts, strict=True)]

    def nearest_scored(self, queries: NDArray[np.float32], count: int) -> None:
        """See `qbe.index.dense.faiss_candidates.SentenceSearch.nearest_scored`: kinds may differ."""

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
        are those of `FaissSegment.nearest`, the former for each segment.
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
    by_codes = results[0].by_codes
    positions = np.concatenate([each.positions for each in results], axis=1)
    closeness = np.concatenate([each.closeness for each in results], axis=1)
    closeness = np.where(positions < 0, -np.inf, closeness).astype(np.float32)
    best = np.lexsort((positions, -closeness), axis=1)[:, : count + 1 if by_codes else count]
    nearest: Rows = np.take_along_axis(positions, best, axis=1)
    return nearer(np.take_along_axis(closeness, best, axis=1), nearest, count) if by_codes else nearest


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
    opened = open_segments(segments, threads, nprobe)
    return FaissCandidates(opened[0] if len(opened) == 1 else FaissSegments(opened), starts)


def open_segments(
    segments: Sequence[OpenSegment], threads: int, nprobe: int | None = None
) -> list[FaissSegment]:
    """The FAISS indexes of segments; parameters and errors are those of `open_candidates`."""
    params = [FaissParams.read(segment.manifest.dense or {}) for segment in segments]
    any_lists = any(each.nlist is not None for each in params)
    return [
        FaissSegment(
            segment.files,
            threads,
            each,
            nprobe if each.nlist is not None or not any_lists else None,
            _live_sentences(segment),
        )
        for segment, each in zip(segments, params, strict=True)
    ]


def _live_sentences(segment: OpenSegment) -> NDArray[np.bool_] | None:
    """Which sentences (sentences,) of a segment belong to papers that are not dead; None: all of them."""
    if not len(segment.dead):
        return None
    alive = np.ones(segment.papers, np.bool_)
    alive[segment.dead] = False
    return np.repeat(alive, np.diff(segment.files.array(STARTS_FILE, "int64", 1)))
