"""The papers, vectors and postings of one generation of an index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qbe.errors import IndexFormatError, PaperNotFoundError, UsageError
from qbe.index.faiss import CandidateSource, FaissIndex
from qbe.index.lucene import Postings, TextSearch
from qbe.index.papers import Mask, PaperLayout, Papers, facet_mask
from qbe.index.params import FaissParams
from qbe.index.scoring import VectorStore
from qbe.index.store import Manifest, open_generation
from qbe.index.vectors import SENTENCES, WHOLE, Vectors, open_vectors
from qbe.models.pooling import PaperVectors
from qbe.types import Facet, Paper

if TYPE_CHECKING:
    from qbe.index.names import Names

_SHOWN = 3  # papers that a message names where a name is that of several

T = TypeVar("T")


class IndexReader:
    """The papers, vectors and postings of one generation of an index, each opened when first used.

    It never changes, and threads may share it. Once nobody refers to it, writers may remove what it read.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.folder, self._threads = folder, threads
        self._lock, self._opened = threading.RLock(), dict[object, Any]()
        self._files = open_generation(folder)
        self.manifest: Manifest = self._files.manifest
        self.generation = self._files.number
        self.papers = Papers(self._files)
        if len(self.papers) != (count := self.manifest.corpus["papers"]):
            raise self._files.damaged("papers.ids", f"{count} papers", len(self.papers))
        self.is_current: Callable[[], bool] = self._files.is_current

    def __len__(self) -> int:
        return len(self.papers)

    def __iter__(self) -> Iterator[Paper]:
        return self.papers.read_from(0)

    def __contains__(self, paper_id: object) -> bool:
        return isinstance(paper_id, str) and self.papers.find(paper_id) is not None

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError, TypeError for an id that is no str."""
        if not isinstance(paper_id, str):
            found = f"{paper_id!r:.60} ({type(paper_id).__name__})"
            raise TypeError(f"expected the id of a paper as a str, found {found}")
        return self.papers[self.papers.row(paper_id)]

    @property
    def names(self) -> Names:
        from qbe.index.names import Names

        return self._open_once("names", lambda: Names(self.papers))

    def find(self, name: str) -> Paper:
        """Return the one paper of a name: its id, DOI, id of arXiv or the ACL, URL, title or part of it."""
        if not isinstance(name, str) or self.papers.find(name) is not None:
            return self.paper(name)
        from qbe.index.names import MOST, shortcuts

        ids = [each for each in shortcuts(name) if self.papers.find(each) is not None][:1]
        ids = ids or self.names.find(name)
        if len(ids) == 1:
            return self.paper(ids[0])
        text = (
            f"the id, DOI, arXiv id or title of one of the {len(self)} papers of the index, found {name!r}; "
        )
        text += "check it"
        if ids:
            shown = [f"{paper_id} ({self.paper(paper_id).title:.60})" for paper_id in ids[:_SHOWN]]
            shown += ["..."] if len(ids) > _SHOWN else []
            count = f"{len(ids):,}" if len(ids) < MOST else f"{MOST:,} or more"
            text = f"the name of one paper, found {count} with {name!r} in their titles: {', '.join(shown)}; "
            text += "give an id, or more of the title"
        raise PaperNotFoundError(f"expected {text}")

    def require_vectors(self) -> None:
        """Raise IndexFormatError where the index has no vectors."""
        self._require("vectors", self.manifest.dense)

    def _require(self, part: str, described: object) -> None:
        if described is None:
            raise IndexFormatError(
                f"{self.folder}: expected an index with {part}, found one built without; build it with both "
                "postings and vectors, or search with another `first_stage` or `rerank`"
            )

    @property
    def layout(self) -> PaperLayout:
        """Where each paper's sentences lie among the sentence vectors, and their facets."""
        return self.papers.layout

    def facet_mask(self, facet: Facet) -> Mask:
        """Return which sentences (sentences,) count as a facet; see `qbe.index.papers.facet_mask`."""
        return self._open_once(facet, lambda: facet_mask(self.layout, facet))

    @property
    def similarity(self) -> str:
        self.require_vectors()
        return self.manifest.similarity

    @property
    def sentence_vectors(self) -> Vectors:
        """Vectors of all sentences, (sentences, dimension), as stored, memory-mapped."""
        return self._vectors(SENTENCES, "sentences")

    @property
    def whole_vectors(self) -> Vectors:
        """One vector a paper, (papers, dimension), likewise."""
        return self._vectors(WHOLE, "papers")

    def _vectors(self, name: str, unit: str) -> Vectors:
        self.require_vectors()

        def read() -> Vectors:
            assert self.manifest.dense is not None
            vectors = open_vectors(self._files, name, self.manifest.dense["stored"])
            if len(vectors) != (count := self.manifest.corpus[unit]):
                raise self._files.damaged(name, f"vectors of {count} {unit}", len(vectors))
            return vectors

        return self._open_once(name, read)

    @property
    def vector_store(self) -> VectorStore:
        starts = self.layout.starts
        return VectorStore(self.sentence_vectors, self.whole_vectors, starts, self.similarity)

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        self.require_vectors()
        if nprobe is not None and nprobe < 1:
            raise UsageError(f"expected `nprobe` of at least 1, found {nprobe}")

        def open_source() -> CandidateSource:
            params = FaissParams.read(self.manifest.dense or {})
            sentences = FaissIndex(self._files, self._threads, params, nprobe)
            return CandidateSource(sentences, self.layout.starts)

        return self._open_once(("candidates", nprobe), open_source)

    @property
    def lucene(self) -> Postings:
        described = self.manifest.lucene
        self._require("postings", described)
        return self._open_once("lucene", lambda: Postings(self._files, len(self), described or {}))

    def text_search(self, similarity: str = "bm25") -> TextSearch:
        """Return what searches the texts by BM25 or tf-idf, opened once."""
        return self._open_once(
            ("text search", similarity), lambda: TextSearch(self.lucene, self.papers.ids, similarity)
        )

    def stored_vectors(self, paper: Paper) -> PaperVectors | None:
        """Return the stored vectors of a paper, if the index has one of its id with the same texts."""
        self.require_vectors()
        row = self.papers.find(paper.paper_id)
        if row is None:
            return None
        texts, own = (
            (each.title, [sentence.text for sentence in each.sentences]) for each in (paper, self.papers[row])
        )
        if own != texts:
            return None
        block = self.vector_store.gather(np.array([row]))
        whole = self.vector_store.whole(np.array([row])).astype(np.float32)
        return PaperVectors(block.vectors.astype(np.float32), whole[0])

    def _open_once(self, key: object, open_part: Callable[[], T]) -> T:
        if key not in self._opened:
            with self._lock:
                if key not in self._opened:
                    self._opened[key] = open_part()
        part: T = self._opened[key]
        return part
