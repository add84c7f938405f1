"""An index opened for reading."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from qbe.errors import IndexFormatError, UsageError
from qbe.index.manifest import Manifest, similarity_of
from qbe.index.papers import PaperLayout
from qbe.index.segments.combined import combined_manifest
from qbe.index.segments.snapshot import open_snapshot
from qbe.index.segments.views import Papers, open_papers, open_vectors
from qbe.types import Facet, Paper

if TYPE_CHECKING:
    from qbe.encode.encoder import Encoder, PaperVectors
    from qbe.index.dense.neighbours import Neighbours
    from qbe.index.dense.stored import Vectors
    from qbe.index.labels import Mask
    from qbe.index.segments.lucene import Postings
    from qbe.index.segments.nearest import NeighbourParts
    from qbe.models.encoder_files import EncoderFiles
    from qbe.tag.tagging import TaggingEncoder


class Index:
    """An index folder: its papers, vectors and postings, each loaded when first asked for.

    It stays as it was when it was opened, whatever a writer does meanwhile, until it is closed. Rows are of
    all papers in order; those deleted keep theirs, and are never found. Usable as a context manager.
    ``threads`` serves FAISS and the query encoder.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: str | None = None,
        threads: int = 1,
        *,
        tagger: str | None = None,
        nprobe: int | None = None,
    ) -> None:
        """Open the index in ``folder``.

        ``encoder`` (a name or folder) is checked against the one the index was built with; None takes
        that one. ``tagger`` (a name or folder) may be another than the index's: it labels queries. ``nprobe``
        takes the place of the index's own (see `qbe.index.dense.ann.AnnParams`). Raises IndexFormatError for
        a folder that is no sound index, EncoderMismatchError for another encoder than the index's, ModelError
        for a tagger that cannot be found.
        """
        self.folder = Path(folder)
        self._snapshot = open_snapshot(self.folder)
        self.manifest: Manifest = combined_manifest(self._snapshot)
        self.papers: Papers = open_papers(self._snapshot.parts)
        self.threads = threads
        self._encoder_name, self._tagger_name, self._nprobe = encoder, tagger, nprobe
        self._lucene: Postings | None = None
        self._masks: dict[Facet, Mask] = {}
        self._read: tuple[Paper, PaperVectors] | None = None
        if tagger is not None:
            from qbe.models.tagger_files import resolve_tagger

            resolve_tagger(tagger)  # what is none is refused now, even if it is never asked
        if encoder is not None and self.manifest.dense is not None:
            self._encoder_files  # noqa: B018  (another encoder is refused now, even if it is never asked)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the postings, if they were opened, and let writers remove what the index has outlived."""
        if self._lucene is not None:
            self._lucene.close()
            self._lucene = None
        self._snapshot.close()

    def __len__(self) -> int:
        return len(self.papers)

    @property
    def generation(self) -> int:
        """How many times the index had been written to since it was built, when it was opened."""
        return self._snapshot.generation

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError."""
        return self.papers[self.papers.row(paper_id)]

    @cached_property
    def layout(self) -> PaperLayout:
        """Where each paper's sentences lie among the sentence vectors, and their facets."""
        return self.papers.layout()

    def facet_mask(self, facet: Facet) -> Mask:
        """Which sentences (sentences,) bool count as a facet: those labelled so, and in a paper whose labels
        were predicted and do not include it, the best guess (see `qbe.index.labels.facet_mask`). A paper that
        came with labels, none of them the facet's, has no such sentence.
        """
        if facet not in self._masks:
            from qbe.index.labels import facet_mask

            self._masks[facet] = facet_mask(self.layout, facet)
        return self._masks[facet]

    @cached_property
    def _vectors(self) -> tuple[Vectors, Vectors]:
        self._need("dense")
        return open_vectors(self._snapshot.parts)

    @property
    def similarity(self) -> str:
        """How its vectors are compared, one of `qbe.models.encoder_format.SIMILARITIES`.

        Raises IndexFormatError where the index has no vectors.
        """
        self._need("dense")
        return similarity_of(self.manifest)

    @property
    def sentence_vectors(self) -> Vectors:
        """Vectors of all sentences, (sentences, dimension), in half precision or quantized, memory-mapped; of
        several segments read as one by slices and arrays of rows.
        """
        return self._vectors[0]

    @property
    def whole_vectors(self) -> Vectors:
        """One vector a paper, (papers, dimension), likewise."""
        return self._vectors[1]

    @cached_property
    def neighbours(self) -> Neighbours | NeighbourParts:
        """The FAISS index over the sentence vectors."""
        self._need("dense")
        from qbe.index.segments.nearest import open_neighbours

        return open_neighbours(self._snapshot.parts, self.threads, self._nprobe)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder the index was built with, for queries from outside.

        Raises EncoderMismatchError when the one at hand has other weights or is read in another way.
        """
        from qbe.encode.encoder import Encoder

        return Encoder(self._encoder_files, self.threads)

    @cached_property
    def _tagging(self) -> TaggingEncoder:
        """The encoder, or without vectors the tagger's own, that labels every paper on its way through."""
        from qbe.tag.tagger import Tagger
        from qbe.tag.tagging import TaggingEncoder, open_trunk

        tagger = Tagger.open(self._tagger_name or self.manifest.settings["tagger"])
        encoder = open_trunk(tagger) if self.manifest.dense is None else self.encoder
        return TaggingEncoder(encoder, tagger, "predicted")

    def label_facets(self, paper: Paper, facets: str = "given") -> Paper:
        """A query's paper, its sentences labelled.

        With ``facets`` "given" labels it has are kept, with "predicted" they are predicted anew; those that
        a tagger predicted before are kept in any case. The tagger is the one named at opening, else the one
        in the index's settings. Raises UsageError for other ``facets``, ModelError for a tagger that
        cannot be loaded.
        """
        from qbe.tag.tagging import FACETS

        if facets not in FACETS:
            raise UsageError(f"expected facets {' or '.join(FACETS)}, found {facets!r}")
        if paper.predicted or (paper.labelled and facets == "given"):
            return paper
        self._read = read = self._tagging.encode_paper(paper)  # by several threads at a time, perhaps
        return read[0]

    def encode(self, paper: Paper) -> PaperVectors:
        """Vectors of a query's paper; those of the paper that `read` labelled last are at hand already."""
        last = self._read
        if last is not None and last[0] is paper and self.manifest.dense is not None:
            return last[1]
        return self.encoder.encode_paper(paper)

    def vectors(self, paper: Paper) -> PaperVectors:
        """Vectors of any paper: those stored for a paper of the index, however its sentences are labelled;
        any other is encoded, which loads the encoder.

        Raises IndexFormatError where the index has no vectors.
        """
        from qbe.encode.encoder import PaperVectors

        row = self.papers.find(paper.paper_id)
        if row is None or _texts(self.papers[row]) != _texts(paper):
            return self.encode(paper)
        first, last = self.layout.starts[row : row + 2]
        sentences, whole = self.sentence_vectors[first:last], self.whole_vectors[row]
        return PaperVectors(sentences.astype(np.float32), whole.astype(np.float32))

    @cached_property
    def _encoder_files(self) -> EncoderFiles:
        from qbe.index.models import matching_encoder

        self._need("dense")
        return matching_encoder(self.folder, self.manifest, self._encoder_name)

    @property
    def lucene(self) -> Postings:
        """The postings, opened for `qbe.search.lucene.LuceneSearch`."""
        if self._lucene is None:
            from qbe.index.segments.lucene import open_postings

            self._need("lucene")
            assert self.manifest.lucene is not None
            self._lucene = open_postings(self._snapshot.parts, self.papers, self.manifest.lucene)
        return self._lucene

    def _need(self, part: str) -> None:
        if getattr(self.manifest, part) is None:
            kind, option = ("vectors", "--bm25-only") if part == "dense" else ("postings", "--dense-only")
            raise IndexFormatError(
                f"{self.folder}: expected an index with {kind}, found one built with {option}; choose "
                "another --first-stage or --rerank, or build it without that option"
            )


def _texts(paper: Paper) -> tuple[str, ...]:
    """All that an encoder sees of a paper."""
    return (paper.title, *(sentence.text for sentence in paper.sentences))
