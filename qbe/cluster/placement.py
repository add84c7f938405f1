"""Which segments of an index each shard of a cluster holds, and where their rows lie among all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbe.index.rows import Rows, starts_of
from qbe.index.snapshot import OpenSegment

LARGE = 0.25
"""The share of the largest segment's sentences from which on a segment is a shard of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A segment with the rows of its first paper and of its first sentence among those of the index."""

    segment: OpenSegment
    first_paper: int
    first_sentence: int

    @property
    def papers(self) -> int:
        """How many papers it holds."""
        return self.segment.papers

    @property
    def sentences(self) -> int:
        """How many sentences they have."""
        count: int = self.segment.manifest.corpus["sentences"]
        return count


def shard_count(segments: Sequence[OpenSegment]) -> int:
    """How many shards hold an index: one for each segment that has a LARGE share of the largest one's
    sentences; papers that were added later are too few for a shard of their own.
    """
    sizes = [segment.manifest.corpus["sentences"] for segment in segments]
    return sum(size >= LARGE * max(sizes) for size in sizes)


def placed(segments: Sequence[OpenSegment], shards: int) -> list[list[Placed]]:
    """The segments of each of so many shards, in order: the largest segments first, each where there are
    fewest sentences. Who computes it elsewhere for the same commit gets the same.
    """
    papers = starts_of([segment.papers for segment in segments]).tolist()
    sizes = [segment.manifest.corpus["sentences"] for segment in segments]
    sentences = starts_of(sizes).tolist()
    held: list[list[Placed]] = [[] for _ in range(shards)]
    totals = [0] * shards
    for number in sorted(range(len(segments)), key=lambda number: -sizes[number]):
        shard = totals.index(min(totals))
        totals[shard] += sizes[number]
        held[shard].append(Placed(segments[number], papers[number], sentences[number]))
    return [sorted(shard, key=lambda each: each.first_paper) for shard in held]


class ShardRows:
    """Rows of the papers of a shard, whose segments lie anywhere among those of an index.

    >>> rows = ShardRows(firsts=[0, 10], counts=[4, 2])
    >>> rows.local(np.array([11, 3])).tolist(), rows.whole(np.array([5, 3])).tolist()
    ([5, 3], [11, 3])
    """

    def __init__(self, firsts: Sequence[int], counts: Sequence[int]) -> None:
        """Of each segment the first row in the index, ascending, and the number of rows."""
        self._firsts = np.array(firsts, np.int64)
        self.counts = counts
        self._starts = starts_of(counts)

    @classmethod
    def of_papers(cls, shard: Sequence[Placed]) -> ShardRows:
        """The rows of a shard's papers."""
        return cls([each.first_paper for each in shard], [each.papers for each in shard])

    @classmethod
    def of_sentences(cls, shard: Sequence[Placed]) -> ShardRows:
        """The rows of a shard's sentences."""
        return cls([each.first_sentence for each in shard], [each.sentences for each in shard])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def local(self, rows: Rows) -> Rows:
        """Rows of the index (n,), all of the shard, as rows of the shard."""
        segment = np.searchsorted(self._firsts, rows, side="right") - 1
        local: Rows = rows - self._firsts[segment] + self._starts[segment]
        return local

    def whole(self, rows: Rows) -> Rows:
        """Rows of the shard (n,) as rows of the index."""
        segment = np.searchsorted(self._starts, rows, side="right") - 1
        whole: Rows = rows - self._starts[segment] + self._firsts[segment]
        return whole

    def part(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The shard's part of a mask of all rows of the index."""
        pairs = zip(self._firsts.tolist(), self.counts, strict=True)
        return np.concatenate([mask[first : first + count] for first, count in pairs])
