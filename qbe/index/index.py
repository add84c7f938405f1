"""An index: a folder of papers, postings and vectors, its models, and a commit of it opened for reading."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from qbe.errors import EncoderMismatchError, MissingDependencyError, UsageError
from qbe.index.manifest import Manifest
from qbe.index.papers import PaperLayout
from qbe.index.reader import IndexReader
from qbe.index.views import PaperStore
from qbe.types import Facet, Paper
from qbe.util.files import is_remote
from qbe.util.parallel import Closing, thread_count

if TYPE_CHECKING:
    from qbe.index.dense.stored import Vectors
    from qbe.index.dense.vectors import CandidateSource, VectorStore
    from qbe.index.papers import Mask
    from qbe.index.text_search import Postings
    from qbe.models.cards import EncoderFiles
    from qbe.models.encoder import Encoder
    from qbe.models.pooling import PaperVectors
    from qbe.models.tagger import TaggingEncoder


T = TypeVar("T")
log = logging.getLogger(__name__)


class LabelledPaper(NamedTuple):
    """A labelled paper, and the vectors that came out of the same pass of the encoder; None where no pass was
    needed, or the index has no vectors.

    >>> index.label_and_encode(index.paper("s001")).vectors is None  # the corpus brought its labels
    True
    """

    paper: Paper
    vectors: PaperVectors | None


class _OfReader(Generic[T]):
    """An attribute of an index that is its current reader's attribute of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, index: Index | None, owner: type) -> T:
        if index is None:
            raise AttributeError(self._name)
        with index.reading() as reader:
            value: T = getattr(reader, self._name)
            return value


class Index(Closing):
    """An index folder opened for searching and updating.

    It reads the commit that was the newest when it was opened or last refreshed (see `refresh`); its own
    updates refresh it. Several threads may use it. Usable as a context manager. Iterating over an index gives
    its papers in order, ``in`` looks an id up, and ``len`` counts the papers.

    >>> with Index("indexes/sample") as opened:
    ...     [paper.paper_id for paper in opened][:3], len(opened), opened.similarity
    (['s001', 's002', 's003'], 128, 'cosine')

    The attributes are those of its current `qbe.index.reader.IndexReader`.
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
    lucene: _OfReader[Postings] = _OfReader()

    def __init__(
        self,
        folder: str | Path,
        *,
        encoder: str | None = None,
        tagger: str | None = None,
        threads: int | None = None,
    ) -> None:
        """Open the index in ``folder``, or at an address (see `qbe.index.packs.pulling`), from which it is
        pulled into the cache when it is first opened.

        ``encoder`` (a name or folder) says where the encoder that the index was built with is now, if not
        where it was. ``tagger`` (a name or folder) labels queries; by default the one in the index's
        settings. ``threads`` serve FAISS and the models; by default all available processors.

        Raises IndexFormatError for a folder that is no sound index, EncoderMismatchError for another encoder
        than the index's, ModelError for a tagger that cannot be found, UsageError for threads below 1, and
        what `qbe.index.packs.pulling.pull` does.
        """
        self.threads = thread_count(threads)
        if is_remote(folder):
            from qbe.index.packs.pulling import local_folder

            folder = local_folder(folder)
        self.folder = Path(folder)
        self._encoder_name, self._tagger_name = encoder, tagger
        self._lock, self._refreshing = threading.RLock(), threading.Lock()
        if tagger is not None:
            from qbe.models.folders import resolve_tagger

            resolve_tagger(tagger)  # refused now, even if it is never used
        self._reader: IndexReader | None = None
        reader = self._open_reader()
        try:
            self._models = self._models_for(reader)
        except BaseException:
            reader.release()
            raise
        self._reader = reader

    def _open_reader(self) -> IndexReader:
        """A reader of the newest commit."""
        return IndexReader(self.folder, self.threads)

    def _models_for(self, reader: IndexReader) -> IndexModels:
        return IndexModels(self.folder, reader.manifest, self._encoder_name, self._tagger_name, self.threads)

    def close(self) -> None:
        """Stop reading; searches under way keep the reader until they end."""
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.release()

    @contextmanager
    def reading(self) -> Iterator[IndexReader]:
        """The current reader, held until the block ends, whatever updates and refreshes happen meanwhile.

        Raises UsageError where the index is closed.
        """
        with self._lock:
            if self._reader is None:
                raise UsageError(
                    f"expected an open index of {self.folder}, found a closed one; open it again"
                )
            reader = self._reader.retain()
        try:
            yield reader
        finally:
            reader.release()

    def read(self, function: Callable[[IndexReader], T]) -> T:
        """The result of a function of the current reader, which is held until it returns.

        An index that may lose parts of itself meanwhile calls the function again, with another reader. Raises
        UsageError where the index is closed, and what the function does.

        >>> index.read(len)
        128
        """
        with self.reading() as reader:
            return function(reader)

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

    def find(self, name: str) -> Paper:
        """The one paper of a name, see `IndexReader.find`; raises PaperNotFoundError.

        >>> index.find("Two Crops of a Paragraph").paper_id, index.find("S036").paper_id
        ('s036', 's036')
        """
        with self.reading() as reader:
            return reader.find(name)

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

    def refresh(self) -> bool:
        """Move to the newest commit; returns whether there was a newer one.

        Searches under way keep the old reader until they end. Raises IndexFormatError where the folder is no
        sound index now, EncoderMismatchError where it was rebuilt with another encoder than ``encoder``;
        then nothing changes.
        """
        with self._refreshing:
            with self.reading() as old:
                if old.is_current():
                    return False
                reader = self._open_reader()
                try:
                    models = self._models_for(reader) if _rebuilt(old, reader) else self._models
                except BaseException:
                    reader.release()
                    raise
            with self._lock:
                if self._reader is None:  # closed meanwhile
                    reader.release()
                    return True
                replaced, self._reader, self._models = self._reader, reader, models
            replaced.release()
            return True

    @property
    def encoder(self) -> Encoder:
        """The encoder the index was built with, for queries from outside; loaded when first used.

        Raises EncoderMismatchError when the one at hand has other weights or reads papers in another way,
        IndexFormatError where the index has no vectors.
        """
        self.require_vectors()
        return self._models.encoder

    def label_facets(self, paper: Paper, facets: str = "given") -> Paper:
        """A query's paper with its sentences labelled; see `label_and_encode`."""
        return self.label_and_encode(paper, facets).paper

    def label_and_encode(self, paper: Paper, facets: str = "given") -> LabelledPaper:
        """A query's paper with its sentences labelled, and its vectors if labelling made them.

        With ``facets`` "given" labels it has are kept, with "predicted" they are predicted again; those that
        a tagger predicted before are kept in any case. The tagger is the one named at opening, else the one
        in the index's settings. Raises TypeError for what is no paper, UsageError for other ``facets``,
        ModelError for a tagger that cannot be loaded.
        """
        _check_paper(paper)
        if facets != "given":
            from qbe.models.tagger import LABEL_SOURCES

            if facets not in LABEL_SOURCES:
                raise UsageError(f"expected `facets` {' or '.join(LABEL_SOURCES)}, found {facets!r}")
        if paper.predicted or (paper.labelled and facets == "given"):
            return LabelledPaper(paper, None)
        labelled, vectors = self._models.tagging.encode_paper(paper)
        return LabelledPaper(labelled, None if self.manifest.dense is None else vectors)

    def vectors(self, paper: Paper) -> PaperVectors:
        """Vectors of any paper: those stored for a paper of the index, however its sentences are labelled;
        any other is encoded, which loads the encoder.

        Raises TypeError for what is no paper, IndexFormatError where the index has no vectors.
        """
        _check_paper(paper)
        with self.reading() as reader:
            stored = reader.stored_vectors(paper)
        return self.encoder.encode_paper(paper) if stored is None else stored


def _check_paper(paper: object) -> None:
    if not isinstance(paper, Paper):
        raise TypeError(f"expected a qbe.Paper, found {paper!r:.60}; look one up with index.paper(id)")


def _rebuilt(old: IndexReader, new: IndexReader) -> bool:
    """Whether an index has other models than before."""

    def models(reader: IndexReader) -> list[object]:
        settings, dense = reader.manifest.settings, reader.manifest.dense or {}
        return [settings.get("encoder"), settings.get("tagger"), dense.get("encoder")]

    return models(old) != models(new)


READING = ("convention", "adapter")
"""Keys of an encoder's identity that say how it reads papers; absent where that is as the default one."""


class IndexModels:
    """The encoder and the tagger of an index, for queries, each loaded when first used; threads may share
    them.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, encoder: str | None, tagger: str | None, threads: int
    ) -> None:
        """``encoder`` and ``tagger`` are names or folders, by default those in the index's settings.

        Raises EncoderMismatchError where ``encoder`` is not the one the index was built with.
        """
        self._folder, self._manifest, self._threads = folder, manifest, threads
        self._encoder_name, self._tagger_name = encoder, tagger
        self._lock = threading.RLock()
        self._encoder: Encoder | None = None
        self._tagging: TaggingEncoder | None = None
        if encoder is not None and manifest.dense is not None:
            matching_encoder(folder, manifest, encoder)  # another encoder is refused now, even if never used

    @property
    def encoder(self) -> Encoder:
        """The encoder of an index with vectors; raises what `matching_encoder` does."""
        from qbe.models.encoder import Encoder
        from qbe.models.session import HALF

        with self._lock:
            if self._encoder is None:
                files = matching_encoder(self._folder, self._manifest, self._encoder_name)
                try:
                    self._encoder = Encoder(files, self._threads)
                except MissingDependencyError as error:
                    if files.precision != HALF:
                        raise
                    files = files.on_any_machine()
                    log.warning(
                        "%s: its papers were encoded in %s, queries are encoded in %s (%s)",
                        *(self._folder, HALF, files.precision, error),
                    )
                    self._encoder = Encoder(files, self._threads)
            return self._encoder

    @property
    def tagging(self) -> TaggingEncoder:
        """The encoder, or without vectors the tagger's own, that labels every paper it encodes.

        Raises ModelError where the tagger cannot be loaded, and what `matching_encoder` does.
        """
        from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk

        with self._lock:
            if self._tagging is None:
                tagger = Tagger.open(self._tagger_name or self._manifest.settings["tagger"])
                encoder = open_trunk(tagger) if self._manifest.dense is None else self.encoder
                self._tagging = TaggingEncoder(encoder, tagger, "predicted")
            return self._tagging


def matching_encoder(folder: Path, manifest: Manifest, name: str | None) -> EncoderFiles:
    """The files of the encoder that an index with vectors was built with, or those of ``name``, checked.

    Raises EncoderMismatchError for other weights, another encoder format or another adapter, ModelError where
    none is found.

    >>> matching_encoder(index.folder, index.manifest, None).metadata.name
    'facet-encoder'
    """
    from qbe.models.folders import resolve_encoder

    assert manifest.dense is not None
    built = manifest.dense["encoder"]
    files = resolve_encoder(name or manifest.settings["encoder"], built["precision"])
    if files.metadata.weights_sha256 != built["weights_sha256"]:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} ({built['weights_sha256'][:12]}), "
            f"found {files.metadata.name} ({files.metadata.weights_sha256[:12]}); give the encoder it was "
            "built with as `encoder`, or build the index again"
        )
    expected, actual = ({key: identity.get(key) for key in READING} for identity in (built, files.identity))
    if actual != expected:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} read as {_in_words(expected)}, "
            f"found it read as {_in_words(actual)}; give the encoder it was built with as `encoder`, or "
            "build the index again"
        )
    return files


def _in_words(reading: Mapping[str, Any]) -> str:
    stated = {**(reading["convention"] or {}), "adapter": reading["adapter"]}
    words = [f"{key} {value}" for key, value in stated.items() if value is not None]
    return ", ".join(words) or "the default encoder"
