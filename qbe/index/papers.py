"""The papers of an index: one JSON record a line, found by row or by id without reading the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qbe.corpus.jsonl import dump_record
from qbe.corpus.record import paper_to_record, parse_paper
from qbe.errors import PaperNotFoundError
from qbe.types import Facet, Paper

RECORDS = "papers.jsonl"
IDS = "papers.ids"
OFFSETS = "papers.offsets.npy"
FACET_CODES: tuple[Facet | None, ...] = (None, *Facet)
"""A sentence's facet is stored as its place in this tuple."""


class PaperCounts(NamedTuple):
    """How many papers a store holds, how many carry labels, and their sentences."""

    papers: int
    labelled: int
    sentences: int


class PaperLayout(NamedTuple):
    """Sentences of all papers, laid end to end.

    ``starts`` (papers + 1,) int64: paper i has the sentences starts[i] to starts[i + 1]; ``facets``
    (sentences,) uint8: places in FACET_CODES.
    """

    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    facets: np.ndarray[tuple[int], np.dtype[np.uint8]]


STARTS_FILE = "sentences.npy"
FACETS_FILE = "facets.npy"


def write_papers(folder: Path, papers: Iterable[Paper]) -> PaperCounts:
    """Write the papers and their layout into a folder; they are read as a stream."""
    offsets, starts, facets, labelled = [0], [0], bytearray(), 0
    codes = {facet: code for code, facet in enumerate(FACET_CODES)}
    with (folder / RECORDS).open("wb") as records, (folder / IDS).open("w", encoding="utf-8") as ids:
        for paper in papers:
            line = dump_record(paper_to_record(paper))
            records.write(line)
            ids.write(paper.paper_id + "\n")
            offsets.append(offsets[-1] + len(line))
            starts.append(starts[-1] + len(paper.sentences))
            facets.extend(codes[sentence.facet] for sentence in paper.sentences)
            labelled += paper.labelled
    np.save(folder / OFFSETS, np.array(offsets, dtype=np.int64))
    np.save(folder / STARTS_FILE, np.array(starts, dtype=np.int64))
    np.save(folder / FACETS_FILE, np.frombuffer(bytes(facets), dtype=np.uint8))
    return PaperCounts(len(offsets) - 1, labelled, starts[-1])


class PaperStore:
    """Random access to the papers of an index folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @cached_property
    def ids(self) -> list[str]:
        """Paper ids by row."""
        return (self._folder / IDS).read_text(encoding="utf-8").split("\n")[:-1]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {paper_id: row for row, paper_id in enumerate(self.ids)}

    def row(self, paper_id: str) -> int:
        """The row of a paper; raises PaperNotFoundError."""
        try:
            return self._rows[paper_id]
        except KeyError:
            raise PaperNotFoundError(
                f"expected the id of one of the {len(self)} papers of the index, found {paper_id!r}; check it"
            ) from None

    def find(self, paper_id: str) -> int | None:
        """The row of a paper, or None where the index has none of that id."""
        return self._rows.get(paper_id)

    def __getitem__(self, row: int) -> Paper:
        with (self._folder / RECORDS).open("rb") as stream:
            stream.seek(int(self._offsets[row]))
            return _paper(stream.readline())

    def read_from(self, row: int) -> Iterator[Paper]:
        """All papers from a row on, in order."""
        with (self._folder / RECORDS).open("rb") as stream:
            stream.seek(int(self._offsets[row]))
            for line in stream:
                yield _paper(line)

    def layout(self) -> PaperLayout:
        """Where each paper's sentences lie, and their facets."""
        return PaperLayout(np.load(self._folder / STARTS_FILE), np.load(self._folder / FACETS_FILE))


def _paper(line: bytes) -> Paper:
    return parse_paper(json.loads(line), RECORDS)
