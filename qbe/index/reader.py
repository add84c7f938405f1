"""One commit of an index, opened for reading."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qbe.errors import IndexFormatError, PaperNotFoundError, UsageError
from qbe.index.manifest import Manifest
from qbe.index.papers import PaperLayout
from qbe.index.snapshot import open_snapshot
from qbe.index.views import PaperStore, combined_manifest, open_vectors
from qbe.types import Facet, Paper

if TYPE_CHECKING:
    from qbe.index.dense.stored import Vectors
    from qbe.index.dense.vectors import CandidateSource, VectorStore
    from qbe.index.names import Names
    from qbe.index.papers import Mask
    from qbe.index.text_search import Postings, TextSearch
    from qbe.models.pooling import PaperVectors

T = TypeVar("T")

_SHOWN = 3
"""Papers that a message names where a name is that of several."""


class IndexReader:
    """The papers, vectors and postings of an index as of one commit, each opened when first used.

    A reader never changes, whatever a writer does meanwhile. Rows are those of all papers in order; deleted
    papers keep theirs, and are never found. Iterating over a reader gives its papers in order, ``in`` looks
    an id up, and ``len`` counts the papers. Several threads may use a reader.

    The users of a reader are counted: `retain` adds one and `release` removes one; the reader is closed when
    none is left. It begins with one.

    >>> reader = IndexReader(Path("indexes/sample"))
    >>> len(reader), reader.generation, reader.is_current()
    (128, 0, True)
    >>> reader.release()
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """Open the newest commit of the index in ``folder``; ``threads`` are FAISS's.

        Raises IndexFormatError for a folder that is no sound index.
        """
        self.folder, self._threads = folder, threads
        self._snapshot = open_snapshot(folder)
        self.manifest: Manifest = combined_manifest(self._snapshot)
        self.papers = PaperStore(self._snapshot.segments)
        self._lock = threading.RLock()
        self._holders = 1
        self._opened: dict[object, Any] = {}
        self._naming = threading.Lock()
        self._names: Names | None = None

    def retain(self) -> IndexReader:
        """Add a holder; returns the reader. Raises UsageError where it is closed already."""
        with self._lock:
            if not self._holders:
                raise UsageError(
                    f"expected an open reader of {self.folder}, found a closed one; open another"
                )
            self._holders += 1
        return self

    def release(self) -> None:
        """Remove a holder; the last one's call closes the reader, and lets writers remove what it read."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            postings = self._opened.pop("lucene", None)
        if postings is not None:
            postings.close()
        self._snapshot.close()

    def is_current(self) -> bool:
        """Whether the index has no newer commit; raises IndexFormatError where it is no sound index now."""
        newest = open_snapshot(self.folder)
        try:
            return self._snapshot.is_same(newest)
        finally:
            newest.close()

    def __len__(self) -> int:
        return len(self.papers)

    def __iter__(self) -> Iterator[Paper]:
        return self.papers.read_from(0)

    def __contains__(self, paper_id: object) -> bool:
        return isinstance(paper_id, str) and self.papers.find(paper_id) is not None

    @property
    def generation(self) -> int:
        """How many commits were made to the index since it was built."""
        return self._snapshot.generation

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError, TypeError for an id that is no str."""
        if not isinstance(paper_id, str):
            raise TypeError(
                f"expected the id of a paper as a str, found {paper_id!r:.60} ({type(paper_id).__name__})"
            )
        return self.papers[self.papers.row(paper_id)]

    @property
    def names(self) -> Names:
        """What the papers are called; read once, while nothing else waits."""
        from qbe.index.names import Names

        with self._naming:
            if self._names is None:
                self._names = Names(self.papers)
            return self._names

    def find(self, name: str) -> Paper:
        """The one paper of a name: its id, a DOI, an id of arXiv or the ACL, each also as an address, its
        title, or a part of it that no other title has (see `qbe.index.names.Names`).

        Raises PaperNotFoundError where there is none, or several, which it names; TypeError for a name that
        is no str.

        >>> with index.reading() as reader:
        ...     reader.find("two crops of a paragraph").paper_id
        's036'
        """
        if isinstance(name, str) and self.papers.find(name) is None:
            from qbe.index.names import shortcuts

            found = next((each for each in shortcuts(name) if self.papers.find(each) is not None), None)
            ids = [found] if found is not None else self.names.find(name)
            if len(ids) != 1:
                raise PaperNotFoundError(self._not_named(name, ids))
            name = ids[0]
        return self.paper(name)

    def _not_named(self, name: str, ids: Sequence[str]) -> str:
        """What to say of a name of no paper, or of several."""
        from qbe.index.names import MOST

        if not ids:
            return (
                f"expected the id, DOI, arXiv id or title of one of the {len(self)} papers of the index, "
                f"found {name!r}; check it"
            )
        shown = [f"{paper_id} ({self.paper(paper_id).title:.60})" for paper_id in ids[:_SHOWN]]
        count = f"{len(ids):,}" if len(ids) < MOST else f"{MOST:,} or more"
        return (
            f"expected the name of one paper, found {count} with {name!r} in their titles: "
            f"{', '.join([*shown, *(['...'] if len(ids) > _SHOWN else [])])}; give an id, or more "
            "of the title"
        )

    def require_vectors(self) -> None:
        """Raise IndexFormatError where the index has no vectors."""
        if self.manifest.dense is None:
            raise self._lacking("vectors")

    def require_postings(self) -> None:
        """Raise IndexFormatError where the index has no Lucene postings."""
        if self.manifest.lucene is None:
            raise self._lacking("postings")

    def _lacking(self, part: str) -> IndexFormatError:
        return IndexFormatError(
            f"{self.folder}: expected an index with {part}, found one built without; build it with both "
            "postings and vectors, or search with another `first_stage` or `rerank`"
        )

    @property
    def layout(self) -> PaperLayout:
        """Where each paper's sentences lie among the sentence vectors, and their facets."""
        return self._open_once("layout", self.papers.layout)

    def facet_mask(self, facet: Facet) -> Mask:
        """Which sentences (sentences,) bool count as a facet: those labelled so, and in a paper whose labels
        were predicted and do not include it, the best guess (see `qbe.index.papers.facet_mask`). A paper that
        came with labels, none of them the facet's, has no such sentence.
        """
        from qbe.index.papers import facet_mask

        return self._open_once(facet, lambda: facet_mask(self.layout, facet))

    @property
    def similarity(self) -> str:
        """How its vectors are compared, one of `qbe.models.formats.SIMILARITIES`.

        Raises IndexFormatError where the index has no vectors.
        """
        self.require_vectors()
        return self.manifest.similarity

    @property
    def sentence_vectors(self) -> Vectors:
        """Vectors of all sentences, (sentences, dimension), in half precision or quantized, memory-mapped; of
        several segments read as one by slices and arrays of rows.

        Raises IndexFormatError where the index has no vectors.
        """
        return self._vectors()[0]

    @property
    def whole_vectors(self) -> Vectors:
        """One vector a paper, (papers, dimension), likewise."""
        return self._vectors()[1]

    def _vectors(self) -> tuple[Vectors, Vectors]:
        self.require_vectors()
        return self._open_once("vectors", lambda: open_vectors(self._snapshot.segments))

    @property
    def vector_store(self) -> VectorStore:
        """The stored vectors by paper; raises IndexFormatError where the index has none."""
        from qbe.index.dense.vectors import MappedVectors

        def open_store() -> VectorStore:
            return MappedVectors(
                self.sentence_vectors, self.whole_vectors, self.layout.starts, self.similarity
            )

        return self._open_once("vector store", open_store)

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        """What finds candidates by sentence vectors: FAISS, opened once for each ``nprobe``, which overrides
        the number of lists that the index's settings have it search.

        Raises UsageError for an ``nprobe`` of an index without lists, IndexFormatError where the index has no
        vectors or its FAISS index is damaged.
        """
        self.require_vectors()
        from qbe.index.views import open_candidates

        def open_source() -> CandidateSource:
            return open_candidates(self._snapshot.segments, self.layout.starts, self._threads, nprobe)

        return self._open_once(("candidates", nprobe), open_source)

    @property
    def lucene(self) -> Postings:
        """The Lucene postings, opened once; raises IndexFormatError where the index has none, JavaError where
        Java cannot be started.
        """
        from qbe.index.text_search import open_postings

        self.require_postings()
        parameters = self.manifest.lucene or {}
        return self._open_once(
            "lucene", lambda: open_postings(self._snapshot.segments, self.papers, parameters)
        )

    def text_search(self) -> TextSearch:
        """What searches the texts by BM25, opened once; raises what `lucene` does.

        >>> with index.reading() as reader:
        ...     reader.text_search().search("unlabelled eye photographs", 1).rows.tolist()
        [0]
        """
        from qbe.index.text_search import LuceneSearch

        return self._open_once("text search", lambda: LuceneSearch(self.lucene, self.papers.ids))

    def stored_vectors(self, paper: Paper) -> PaperVectors | None:
        """The stored vectors of a paper, if the index has one of its id with the same texts, however its
        sentences are labelled; else None. Raises IndexFormatError where the index has no vectors.
        """
        from qbe.models.pooling import PaperVectors

        self.require_vectors()
        row = self.papers.find(paper.paper_id)
        if row is None or _texts(self.papers[row]) != _texts(paper):
            return None
        first, last = self.layout.starts[row : row + 2]
        sentences, whole = self.sentence_vectors[first:last], self.whole_vectors[row]
        return PaperVectors(sentences.astype(np.float32), whole.astype(np.float32))

    def _open_once(self, key: object, open_part: Callable[[], T]) -> T:
        """A part of the index, opened by the first thread that uses it."""
        if key not in self._opened:
            with self._lock:
                if key not in self._opened:
                    self._opened[key] = open_part()
        part: T = self._opened[key]
        return part


def _texts(paper: Paper) -> tuple[str, ...]:
    """All that an encoder reads of a paper."""
    return (paper.title, *(sentence.text for sentence in paper.sentences))
