"""An index opened for reading."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from qbe.errors import EncoderMismatchError, IndexFormatError
from qbe.index.manifest import Manifest, read_manifest
from qbe.index.papers import PaperLayout, PaperStore
from qbe.types import Paper

if TYPE_CHECKING:
    from qbe.encode.encoder import Encoder
    from qbe.index.neighbours import Neighbours
    from qbe.index.vectors import Half
    from qbe.models.encoder_files import EncoderFiles


class Index:
    """An index folder: its papers, vectors and postings, each loaded when first asked for.

    Usable as a context manager. ``threads`` serves FAISS and the query encoder.
    """

    def __init__(self, folder: str | Path, encoder: str | None = None, threads: int = 1) -> None:
        """Open the index in ``folder``.

        ``encoder`` (a name or folder) is checked against the one the index was built with; None takes
        that one. Raises IndexFormatError for a folder that is no sound index, EncoderMismatchError for
        another encoder than the index's.
        """
        self.folder = Path(folder)
        self.manifest: Manifest = read_manifest(self.folder)
        self.papers = PaperStore(self.folder)
        self.threads = threads
        self._encoder_name = encoder
        self._lucene: Any = None
        if encoder is not None and self.manifest.dense is not None:
            self._encoder_files  # noqa: B018  (another encoder is refused now, even if it is never asked)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the Lucene searcher, if it was opened."""
        if self._lucene is not None:
            self._lucene.close()
            self._lucene = None

    def __len__(self) -> int:
        return len(self.papers)

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError."""
        return self.papers[self.papers.row(paper_id)]

    @cached_property
    def layout(self) -> PaperLayout:
        """Where each paper's sentences lie among the sentence vectors, and their facets."""
        return self.papers.layout()

    @cached_property
    def _vectors(self) -> tuple[Half, Half]:
        from qbe.index.vectors import read_vectors

        self._need("dense")
        return read_vectors(self.folder)

    @property
    def sentence_vectors(self) -> Half:
        """Vectors of all sentences, (sentences, dimension) float16, memory-mapped."""
        return self._vectors[0]

    @property
    def whole_vectors(self) -> Half:
        """One vector a paper, (papers, dimension) float16, memory-mapped."""
        return self._vectors[1]

    @cached_property
    def neighbours(self) -> Neighbours:
        """The FAISS index over the sentence vectors."""
        from qbe.index.neighbours import Neighbours

        self._need("dense")
        return Neighbours(self.folder, self.threads)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder the index was built with, for queries from outside.

        Raises EncoderMismatchError when the one at hand has other weights or another precision.
        """
        from qbe.encode.encoder import Encoder

        return Encoder(self._encoder_files, self.threads)

    @cached_property
    def _encoder_files(self) -> EncoderFiles:
        from qbe.models.encoder_files import resolve_encoder

        self._need("dense")
        assert self.manifest.dense is not None
        built = self.manifest.dense["encoder"]
        name = self._encoder_name or self.manifest.settings["encoder"]
        files = resolve_encoder(name, built["precision"])
        if files.card.weights_sha256 != built["weights_sha256"]:
            raise EncoderMismatchError(
                f"{self.folder} was built with the encoder {built['name']} ({built['weights_sha256'][:12]}), "
                f"found {files.card.name} ({files.card.weights_sha256[:12]}); give the encoder it was built "
                "with as --encoder, or build the index again"
            )
        return files

    @property
    def lucene(self) -> Any:
        """Anserini's ``SimpleSearcher`` on the postings, with the BM25 parameters of the manifest."""
        if self._lucene is None:
            from qbe import _jvm

            self._need("lucene")
            assert self.manifest.lucene is not None
            simple_searcher = _jvm.java_class("io.anserini.search.SimpleSearcher")
            try:
                # Java knows only the folder it was started in, not the current one.
                searcher = simple_searcher(str((self.folder / "lucene").absolute()))
            except Exception as error:
                raise IndexFormatError(
                    f"{self.folder / 'lucene'}: expected a Lucene index, found {_jvm.java_message(error)}; "
                    "the index is damaged: build it again"
                ) from error
            searcher.set_bm25(self.manifest.lucene["k1"], self.manifest.lucene["b"])
            self._lucene = searcher
        return self._lucene

    def _need(self, part: str) -> None:
        if getattr(self.manifest, part) is None:
            kind, option = ("vectors", "--bm25-only") if part == "dense" else ("postings", "--dense-only")
            raise IndexFormatError(
                f"{self.folder}: expected an index with {kind}, found one built with {option}; choose "
                "another --first-stage, or build it without that option"
            )
