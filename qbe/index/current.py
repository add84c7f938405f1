"""The part of an index that delegates to its current reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, TypeVar

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

T = TypeVar("T")


class _OfReader(Generic[T]):
    """An attribute of an index that is its current reader's attribute of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, index: CurrentReader | None, owner: type) -> T:
        if index is None:
            raise AttributeError(self._name)
        with index.reading() as reader:
            value: T = getattr(reader, self._name)
            return value


class CurrentReader(ABC):
    """The papers, vectors and postings of the current reader; each attribute is documented at `IndexReader`.

    >>> len(index), "s001" in index, index.similarity
    (128, True, 'cosine')
    >>> index.paper("s001").title
    'Fewer Graded Retinas: Learning from Unlabelled Eye Photographs'
    """

    generation = _OfReader[int]()
    notes = _OfReader[tuple[str, ...]]()
    manifest = _OfReader[Manifest]()
    papers = _OfReader[PaperStore]()
    layout = _OfReader[PaperLayout]()
    similarity = _OfReader[str]()
    sentence_vectors: _OfReader[Vectors] = _OfReader()
    whole_vectors: _OfReader[Vectors] = _OfReader()
    vector_store: _OfReader[VectorStore] = _OfReader()
    comparer: _OfReader[Comparer] = _OfReader()
    lucene: _OfReader[Postings] = _OfReader()

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

    def facet_mask(self, facet: Facet) -> Mask:
        """See `IndexReader.facet_mask`."""
        with self.reading() as reader:
            return reader.facet_mask(facet)

    def require_vectors(self) -> None:
        """Raise IndexFormatError where the index has no vectors."""
        with self.reading() as reader:
            reader.require_vectors()

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        """See `IndexReader.candidate_source`."""
        with self.reading() as reader:
            return reader.candidate_source(nprobe)
