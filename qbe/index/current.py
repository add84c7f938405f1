"""The part of an index that delegates to its current reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from qbe.index.manifest import Manifest
from qbe.index.papers import PaperLayout
from qbe.index.reader import IndexReader
from qbe.index.segments.views import PaperStore
from qbe.types import Facet, Paper

if TYPE_CHECKING:
    from qbe.index.dense.contracts import CandidateSource, Comparer, VectorStore
    from qbe.index.dense.stored import Vectors
    from qbe.index.labels import Mask
    from qbe.index.segments.lucene import Postings


class CurrentReader(ABC):
    """The papers, vectors and postings of the current reader (see `IndexReader`).

    >>> len(index), "s001" in index, index.similarity
    (128, True, 'cosine')
    >>> index.paper("s001").title
    'Fewer Graded Retinas: Learning from Unlabelled Eye Photographs'
    """

    @abstractmethod
    def reading(self) -> AbstractContextManager[IndexReader]:
        """The current reader, held until the block ends; raises UsageError where there is none."""

    def __len__(self) -> int:
        with self.reading() as reader:
            return len(reader)

    def __iter__(self) -> Iterator[Paper]:
        with self.reading() as reader:
            yield from reader

    def __contains__(self, paper_id: object) -> bool:
        with self.reading() as reader:
            return paper_id in reader

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError."""
        with self.reading() as reader:
            return reader.paper(paper_id)

    @property
    def generation(self) -> int:
        """How many commits were made to the index since it was built."""
        with self.reading() as reader:
            return reader.generation

    @property
    def notes(self) -> tuple[str, ...]:
        """See `IndexReader.notes`."""
        with self.reading() as reader:
            return reader.notes

    @property
    def manifest(self) -> Manifest:
        """The description of the index: its settings, counts, models and digest."""
        with self.reading() as reader:
            return reader.manifest

    @property
    def papers(self) -> PaperStore:
        """The papers by row."""
        with self.reading() as reader:
            return reader.papers

    @property
    def layout(self) -> PaperLayout:
        """See `IndexReader.layout`."""
        with self.reading() as reader:
            return reader.layout

    def facet_mask(self, facet: Facet) -> Mask:
        """See `IndexReader.facet_mask`."""
        with self.reading() as reader:
            return reader.facet_mask(facet)

    def require_vectors(self) -> None:
        """Raise IndexFormatError where the index has no vectors."""
        with self.reading() as reader:
            reader.require_vectors()

    @property
    def similarity(self) -> str:
        """See `IndexReader.similarity`."""
        with self.reading() as reader:
            return reader.similarity

    @property
    def sentence_vectors(self) -> Vectors:
        """See `IndexReader.sentence_vectors`."""
        with self.reading() as reader:
            return reader.sentence_vectors

    @property
    def whole_vectors(self) -> Vectors:
        """See `IndexReader.whole_vectors`."""
        with self.reading() as reader:
            return reader.whole_vectors

    @property
    def vector_store(self) -> VectorStore:
        """See `IndexReader.vector_store`."""
        with self.reading() as reader:
            return reader.vector_store

    @property
    def comparer(self) -> Comparer:
        """See `IndexReader.comparer`."""
        with self.reading() as reader:
            return reader.comparer

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        """See `IndexReader.candidate_source`."""
        with self.reading() as reader:
            return reader.candidate_source(nprobe)

    @property
    def lucene(self) -> Postings:
        """See `IndexReader.lucene`."""
        with self.reading() as reader:
            return reader.lucene
