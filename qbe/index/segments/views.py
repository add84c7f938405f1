"""The papers of an index, their layout and vectors, over one segment or several.

Rows run through the segments in order; deleted papers keep their rows and are never found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qbe.errors import PaperNotFoundError
from qbe.index.manifest import stored_as
from qbe.index.papers import Metadata, PaperLayout, SegmentPapers
from qbe.index.rows import Rows, StackedRows, live_rows, sentence_rows, starts_of
from qbe.index.segments.snapshot import OpenSegment
from qbe.types import FacetProbabilities, Paper

if TYPE_CHECKING:
    from qbe.index.dense.stored import Vectors


class PaperStore:
    """The papers of an index, found by row or by id, with or without ``predictions`` (see
    `qbe.index.papers.SegmentPapers`). ``segments`` are the stores of the segments, at least one, and
    ``starts`` (segments + 1,) int64 the rows of their first papers.

    >>> from qbe.index.segments.snapshot import open_snapshot
    >>> snapshot = open_snapshot(index.folder)
    >>> store = PaperStore(snapshot.segments)
    >>> len(store), store.row("s003"), store[2].paper_id
    (128, 2, 's003')
    >>> snapshot.close()
    """

    def __init__(self, segments: Sequence[OpenSegment], predictions: bool = True) -> None:
        self.segments = [SegmentPapers(segment.files, predictions) for segment in segments]
        self._dead = [segment.dead for segment in segments]
        self.starts = starts_of([segment.papers for segment in segments])

    def __len__(self) -> int:
        return int(self.starts[-1]) - sum(map(len, self._dead))

    @cached_property
    def ids(self) -> list[str]:
        """Paper ids by row, those of deleted papers included."""
        return [paper_id for segment in self.segments for paper_id in segment.ids]

    @cached_property
    def _rows(self) -> dict[str, int]:
        ids = self.ids
        if not self.has_deleted:
            return {paper_id: row for row, paper_id in enumerate(ids)}
        return {ids[row]: row for row in self.live.tolist()}

    @property
    def has_deleted(self) -> bool:
        """Whether any paper is deleted."""
        return any(map(len, self._dead))

    @cached_property
    def live(self) -> Rows:
        """The rows of the papers that are not deleted, ascending."""
        dead = [rows + start for rows, start in zip(self._dead, self.starts[:-1], strict=True)]
        return live_rows(int(self.starts[-1]), np.concatenate(dead))

    @cached_property
    def live_mask(self) -> NDArray[np.bool_]:
        """Which papers (papers,) are not deleted."""
        mask = np.zeros(int(self.starts[-1]), np.bool_)
        mask[self.live] = True
        return mask

    def row(self, paper_id: str) -> int:
        """The row of a paper; raises PaperNotFoundError."""
        row = self.find(paper_id)
        if row is None:
            raise PaperNotFoundError(
                f"expected the id of one of the {len(self)} papers of the index, found {paper_id!r}; check it"
            )
        return row

    def find(self, paper_id: str) -> int | None:
        """The row of a paper, or None where the index has none of that id, or a deleted one."""
        return self._rows.get(paper_id)

    def __getitem__(self, row: int) -> Paper:
        segment = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.segments[segment][row - int(self.starts[segment])]

    def read_from(self, row: int) -> Iterator[Paper]:
        """The papers that are not deleted, from a row on, in order."""
        for segment, start, dead in zip(self.segments, self.starts[:-1].tolist(), self._dead, strict=True):
            if row < start + len(segment):
                first, skipped = max(row - start, 0), set(dead.tolist())
                papers = enumerate(segment.read_from(first), first)
                yield from (paper for place, paper in papers if place not in skipped)

    def read_metadata(self) -> Iterator[Metadata]:
        """The metadata of all papers by row, deleted ones included."""
        for segment in self.segments:
            yield from segment.read_metadata()

    def layout(self) -> PaperLayout:
        """The layouts of all segments as one, deleted papers included."""
        return joined([segment.layout() for segment in self.segments])


def rows_of(papers: PaperStore, paper_ids: Iterable[str]) -> Rows:
    """The rows (n,) int64 of papers by their ids, in that order; raises PaperNotFoundError.

    >>> rows_of(index.papers, ["s002", "s001"]).tolist()
    [1, 0]
    """
    return np.array([papers.row(paper_id) for paper_id in paper_ids], dtype=np.int64)


def joined(layouts: Sequence[PaperLayout]) -> PaperLayout:
    """Several layouts as one, in order; where only some have probabilities, the sentences of the others get
    zeros.

    >>> layout = PaperLayout(np.array([0, 2]), np.array([1, 2], np.uint8))
    >>> joined([layout, layout]).starts.tolist(), joined([layout, layout]).facets.tolist()
    ([0, 2, 4], [1, 2, 1, 2])
    """
    if len(layouts) == 1:
        return layouts[0]
    firsts = starts_of([len(layout.facets) for layout in layouts])[:-1]
    pairs = zip(layouts, firsts, strict=True)
    starts = [np.zeros(1, np.int64), *(layout.starts[1:] + first for layout, first in pairs)]
    probabilities = None
    if any(layout.probabilities is not None for layout in layouts):
        probabilities = np.concatenate([_probabilities(layout) for layout in layouts])
    facets = np.concatenate([layout.facets for layout in layouts])
    return PaperLayout(np.concatenate(starts), facets, probabilities)


def _probabilities(layout: PaperLayout) -> np.ndarray[tuple[int, int], np.dtype[np.float16]]:
    if layout.probabilities is not None:
        return layout.probabilities
    return np.zeros((len(layout.facets), len(FacetProbabilities._fields)), np.float16)


def take(layout: PaperLayout, papers: Rows) -> PaperLayout:
    """The layout of some papers only, in the order of their rows.

    >>> layout = PaperLayout(np.array([0, 2, 3]), np.array([1, 2, 3], np.uint8))
    >>> take(layout, np.array([1, 0])).facets.tolist()
    [3, 1, 2]
    """
    rows = sentence_rows(layout.starts, papers)
    probabilities = None if layout.probabilities is None else layout.probabilities[rows]
    counts = (layout.starts[papers + 1] - layout.starts[papers]).tolist()
    return PaperLayout(starts_of(counts), layout.facets[rows], probabilities)


def open_vectors(segments: Sequence[OpenSegment]) -> tuple[Vectors, Vectors]:
    """Sentence vectors and whole-paper vectors of an index, memory-mapped, by row, dead papers included."""
    from qbe.index.dense.vectors import SENTENCES, WHOLE, read_vectors

    pairs = []
    for segment in segments:
        counts = segment.manifest.corpus
        pair = read_vectors(segment.files, stored_as(segment.manifest))
        for name, vectors, count in zip((SENTENCES, WHOLE), pair, ("sentences", "papers"), strict=True):
            if len(vectors) != counts[count]:
                raise segment.files.damaged(name, f"vectors of {counts[count]} {count}", len(vectors))
        pairs.append(pair)
    if len(pairs) == 1:
        return pairs[0]
    return StackedRows([pair[0] for pair in pairs]), StackedRows([pair[1] for pair in pairs])
