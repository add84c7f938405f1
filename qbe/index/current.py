"""The part of an index that delegates to its current reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qbe.index.manifest import Manifest
from qbe.index.papers import PaperLayout
from qbe.index.reader import IndexReader
from qbe.index.segments.views import Papers
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

    @property
    @abstractmethod
    def _current(self) -> IndexReader:
        """The current reader; raises UsageError where there is none."""

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[Paper]:
        return iter(self._current)

    def __contains__(self, paper_id: object) -> bool:
        return paper_id in self._current

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError."""
        return self._current.paper(paper_id)

    @property
    def generation(self) -> int:
        """How many commits were made to the index since it was built."""
        return self._current.generation

    @property
    def manifest(self) -> Manifest:
        """The description of the index: its settings, counts, models and digest."""
        return self._current.manifest

    @property
    def papers(self) -> Papers:
        """The papers by row."""
        return self._current.papers

    @property
    def layout(self) -> PaperLayout:
        """See `IndexReader.layout`."""
        return self._current.layout

    def facet_mask(self, facet: Facet) -> Mask:
        """See `IndexReader.facet_mask`."""
        return self._current.facet_mask(facet)

    def require_vectors(self) -> None:
        """Raise IndexFormatError where the index has no vectors."""
        self._current.require_vectors()

    @property
    def similarity(self) -> str:
        """See `IndexReader.similarity`."""
        return self._current.similarity

    @property
    def sentence_vectors(self) -> Vectors:
        """See `IndexReader.sentence_vectors`."""
        return self._current.sentence_vectors

    @property
    def whole_vectors(self) -> Vectors:
        """See `IndexReader.whole_vectors`."""
        return self._current.whole_vectors

    @property
    def vector_store(self) -> VectorStore:
        """See `IndexReader.vector_store`."""
        return self._current.vector_store

    @property
    def comparer(self) -> Comparer:
        """See `IndexReader.comparer`."""
        return self._current.comparer

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        """See `IndexReader.candidate_source`."""
        return self._current.candidate_source(nprobe)

    @property
    def lucene(self) -> Postings:
        """See `IndexReader.lucene`."""
        return self._current.lucene
