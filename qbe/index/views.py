"""The papers of an index, their layout and vectors, over one segment or several.

Rows run through the segments in order; deleted papers keep their rows and are never found.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import PaperNotFoundError, UsageError
from qbe.index.dense.stored import SENTENCES, WHOLE, Vectors, read_vectors
from qbe.index.manifest import Manifest
from qbe.index.papers import STARTS_FILE, Metadata, PaperLayout, SegmentPapers
from qbe.index.rows import Rows, StackedRows, starts_of
from qbe.index.snapshot import ROOT, OpenSegment, Snapshot
from qbe.types import FacetProbabilities, Paper

if TYPE_CHECKING:
    from qbe.index.dense.faiss_candidates import FaissCandidates
    from qbe.index.dense.faiss_segment import FaissSegment


class PaperStore:
    """The papers of an index, found by row or by id, with or without ``predictions`` (see
    `qbe.index.papers.SegmentPapers`). ``segments`` are the stores of the segments, at least one, and
    ``starts`` (segments + 1,) int64 the rows of their first papers.

    >>> from qbe.index.snapshot import open_snapshot
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
    def live_mask(self) -> NDArray[np.bool_]:
        """Which papers (papers,) are not deleted."""
        mask = np.ones(int(self.starts[-1]), np.bool_)
        for rows, start in zip(self._dead, self.starts[:-1], strict=True):
            mask[rows + start] = False
        return mask

    @cached_property
    def live(self) -> Rows:
        """The rows of the papers that are not deleted, ascending."""
        return np.flatnonzero(self.live_mask)

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

    def read_containing(self, parts: Sequence[bytes]) -> Iterator[Paper | None]:
        """All papers by row, deleted ones included; for None see `SegmentPapers.read_containing`."""
        for segment in self.segments:
            yield from segment.read_containing(parts)

    def read_metadata(self) -> Iterator[Metadata]:
        """The metadata of all papers by row, deleted ones included."""
        for segment in self.segments:
            yield from segment.read_metadata()

    def read_headings(self) -> Iterator[tuple[int, str, str, Metadata]]:
        """Row, id, title and metadata of the papers that are not deleted, in order."""
        row, live = 0, self.live_mask
        for segment in self.segments:
            for heading in segment.read_headings():
                if live[row]:
                    yield row, *heading
                row += 1

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


def open_vectors(segments: Sequence[OpenSegment]) -> tuple[Vectors, Vectors]:
    """Sentence vectors and whole-paper vectors of an index, memory-mapped, by row, dead papers included."""
    pairs = []
    for segment in segments:
        counts = segment.manifest.corpus
        pair = read_vectors(segment.files, segment.manifest.stored)
        for name, vectors, count in zip((SENTENCES, WHOLE), pair, ("sentences", "papers"), strict=True):
            if len(vectors) != counts[count]:
                raise segment.files.damaged(name, f"vectors of {counts[count]} {count}", len(vectors))
        pairs.append(pair)
    if len(pairs) == 1:
        return pairs[0]
    return StackedRows([pair[0] for pair in pairs]), StackedRows([pair[1] for pair in pairs])


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
    from qbe.index.dense.faiss_candidates import FaissCandidates
    from qbe.index.dense.faiss_segment import FaissSegments

    return FaissCandidates(FaissSegments(open_segments(segments, threads, nprobe)), starts)


def open_segments(
    segments: Sequence[OpenSegment], threads: int, nprobe: int | None = None
) -> list[FaissSegment]:
    """The FAISS indexes of segments; parameters and errors are those of `open_candidates`."""
    from qbe.index.dense.ann import FaissParams
    from qbe.index.dense.faiss_segment import FaissSegment

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


Counts = Mapping[str, Any]
COUNTED = ("papers", "labelled", "sentences", "predicted")
"""What a manifest's ``corpus`` counts of its papers; how they were read, and what was left out then, stand
with it.
"""


def combined_manifest(snapshot: Snapshot) -> Manifest:
    """The manifest of an index: that of its only segment, or one combined from all segments'.

    Papers are counted without the deleted ones, Lucene's documents and tokens with them,
    since they count in its statistics. How the corpus was read, and what was left out of it, are facts of one
    segment each, which the whole does not state. ``dense`` is that of the segment with most sentences;
    others, of other sizes, may store vectors and find candidates otherwise. ``settings`` are the last
    segment's with all sources of the corpus, ``files`` those of all segments, and the digests are over the
    segments' own and over their rows of deleted papers.

    >>> from qbe.index.snapshot import open_snapshot
    >>> snapshot = open_snapshot(index.folder)
    >>> combined_manifest(snapshot).digest == index.manifest.digest
    True
    >>> snapshot.close()
    """
    segments = snapshot.segments
    if snapshot.plain:
        return segments[0].manifest
    last = segments[-1].manifest
    sources = [source for each in segments for source in each.manifest.settings["corpus"]]
    return dataclasses.replace(
        last,
        settings={**last.settings, "corpus": list(dict.fromkeys(sources))},
        corpus={
            **_sum([_live_counts(each) for each in segments]),
            "sha256": _digest(segments, [each.manifest.corpus["sha256"] for each in segments]),
        },
        lucene=_lucene(segments),
        dense=max(segments, key=lambda each: each.manifest.corpus["sentences"]).manifest.dense,
        tagger=next((each.manifest.tagger for each in segments[::-1] if each.manifest.tagger), None),
        files={
            name if each.segment.name == ROOT else f"{each.segment.name}/{name}": entry
            for each in segments
            for name, entry in each.manifest.files.items()
        },
        digest=_digest(segments, [each.manifest.digest for each in segments]),
    )


def tagger_identity(manifest: Manifest) -> dict[str, str] | None:
    """The identity of the tagger whose labels an index holds; None where nothing was predicted.

    >>> tagger_identity(index.manifest) is None  # the corpus brought all labels
    True
    """
    if manifest.tagger is None:
        return None
    return {name: manifest.tagger[name] for name in ("name", "sha256", "trunk")}


def _live_counts(segment: OpenSegment) -> Counts:
    """What COUNTED names, of a segment without its deleted papers."""
    if segment.segment.deletions is not None:
        return segment.segment.deletions.corpus
    return {key: segment.manifest.corpus[key] for key in COUNTED}


def counts_without(segment: OpenSegment, rows: Rows) -> Counts:
    """The counts of COUNTED of a segment once some more papers are deleted."""
    store = SegmentPapers(segment.files, predictions=False)
    labelled = sum(store[row].labelled for row in rows.tolist())
    sizes = np.diff(store.layout().starts)
    deleted = {
        "papers": len(rows),
        "labelled": labelled,
        "predicted": len(rows) - labelled if segment.manifest.dense is not None else 0,
        "sentences": int(sizes[rows].sum()),
    }
    return {name: count - deleted[name] for name, count in _live_counts(segment).items()}


def _sum(counts: Sequence[Counts]) -> dict[str, Any]:
    """Counts added up, name by name."""
    return {name: sum(each[name] for each in counts) for name in counts[0]}


def _lucene(segments: Sequence[OpenSegment]) -> Counts | None:
    described = [each.manifest.lucene for each in segments if each.manifest.lucene is not None]
    if not described:
        return None
    statistics = [{key: lucene[key] for key in ("documents", "tokens")} for lucene in described]
    return {**described[-1], **_sum(statistics)}


def _digest(segments: Sequence[OpenSegment], digests: Sequence[str]) -> str:
    dead = [each.segment.deletions.sha256 if each.segment.deletions else None for each in segments]
    text = json.dumps(list(zip(digests, dead, strict=True)))
    return hashlib.sha256(text.encode()).hexdigest()
