"""An index opened for searching and updating: its current generation, its models, and what changes it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from qbe.errors import IndexFormatError, MissingDependencyError, UsageError
from qbe.index import jvm
from qbe.index.papers import Mask, PaperLayout, Papers
from qbe.index.reader import Ask, IndexReader, SeveralReader
from qbe.index.store import Manifest
from qbe.index.vectors import Vectors
from qbe.models.encoding import PaperVectors
from qbe.types import Facet, Paper
from qbe.util.files import StrPath, is_remote
from qbe.util.work import Closing, Workers, thread_count

if TYPE_CHECKING:
    from qbe.corpus.records import Reading
    from qbe.index.source import Corpus
    from qbe.index.update import Written
    from qbe.models.encoder import Encoder
    from qbe.models.tagger import TaggingEncoder

log = logging.getLogger(__name__)


def _of_reader(name: str) -> Any:
    """Return an attribute that is that of the index's current reader."""
    return property(attrgetter(f"reader.{name}"), doc=getattr(IndexReader, name, IndexReader).__doc__)


class Index(Closing):
    """An index folder opened for searching and updating, also as a context manager; threads may share it.

    It reads the generation that was the newest when it was opened, refreshed, or updated by itself.

    >>> with Index("indexes/mini") as opened:
    ...     opened.paper("2505.20979").year, opened.similarity
    ('2025', 'cosine')
    """

    generation: int = _of_reader("generation")
    manifest: Manifest = _of_reader("manifest")
    papers: Papers = _of_reader("papers")
    layout: PaperLayout = _of_reader("layout")
    similarity: str = _of_reader("similarity")
    sentence_vectors: Vectors = _of_reader("sentence_vectors")
    __len__: ClassVar[Callable[[Index], int]] = _of_reader("__len__")
    __iter__: ClassVar[Callable[[Index], Iterator[Paper]]] = _of_reader("__iter__")
    __contains__: ClassVar[Callable[[Index, object], bool]] = _of_reader("__contains__")
    paper: Callable[[str], Paper] = _of_reader("paper")
    find: Callable[..., Paper] = _of_reader("find")
    facet_mask: Callable[[Facet], Mask] = _of_reader("facet_mask")
    require_vectors: Callable[[], None] = _of_reader("require_vectors")

    def __init__(
        self,
        folder: StrPath | Sequence[StrPath],
        *,
        encoder: str | None = None,
        tagger: str | None = None,
        threads: int | None = None,
    ) -> None:
        """Open the index in ``folder``, or at an address, from which it is pulled into the cache once, or
        several side by side; these are updated one by one, and `refresh` shows it.

        ``encoder`` (a name or folder) says where the encoder of the index is now, if not where it was;
        ``tagger`` labels queries, by default the index's. Raises IndexFormatError for no sound index,
        EncoderMismatchError, ModelError, UsageError, and what `qbe.index.share.pull` does.
        """
        self.threads, self._process = thread_count(threads), os.getpid()
        given = [folder] if isinstance(folder, str | os.PathLike) else folder
        if any(map(is_remote, given)):
            from qbe.index.share import local_folder

            given = [*map(local_folder, given)]
        self.folders = [Path(each) for each in given]
        if not self.folders:
            raise UsageError("expected one index or several, found none")
        self.folder = self.folders[0]
        self._encoder_name, self._tagger_name = encoder, tagger
        self._changing, self._loading = threading.Lock(), threading.RLock()
        if tagger is not None:
            from qbe.models.folders import resolve_tagger

            resolve_tagger(tagger)  # refused now, even if it is never used
        self._reader: IndexReader | None = self._open_reader()
        self._encoder: Encoder | None = None
        self._tagging: TaggingEncoder | None = None
        self._check_encoder(self.manifest)

    def _check_encoder(self, manifest: Manifest) -> None:
        if self._encoder_name is not None and manifest.dense is not None:
            from qbe.index.source import matching_encoder

            matching_encoder(self.folder, manifest, self._encoder_name)  # refused now, even if never used

    def _open_reader(self) -> IndexReader:
        readers = [IndexReader(folder, self.threads) for folder in self.folders]
        ask = self._asking(readers)
        return readers[0] if ask is None else SeveralReader(readers, ask)

    def _asking(self, readers: Sequence[IndexReader]) -> Ask | None:
        """Return what asks several readers, in a thread each, and None for one; a cluster asks otherwise."""
        if len(readers) == 1:
            return None
        workers = Workers(len(readers))
        workers.at_exit(jvm.detach)

        def ask(method: str, asked: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
            answers = workers.map(lambda place: getattr(readers[place], method)(*asked[place]), list(asked))
            return dict(zip(asked, answers, strict=True))

        return ask

    @property
    def reader(self) -> IndexReader:
        """The current reader, which a search uses to its end; raises UsageError for a closed index."""
        if (reader := self._reader) is None:
            raise UsageError(f"expected an open index of {self.folder}, found a closed one; open it again")
        # Threads of Java and of models are not there after a fork: it would wait for ever.
        if os.getpid() != self._process:
            raise UsageError(
                f"expected an index that this process opened, found {self.folder} of another, from which it "
                "was forked; open it in each process, and start these by the method spawn or forkserver"
            )
        return reader

    def close(self) -> None:
        """Stop reading; searches under way keep the reader until they end."""
        with self._changing:
            self._reader = None

    def refresh(self) -> bool:
        """Move to a newer generation, and say whether there was one; searches under way keep the old one.

        Raises IndexFormatError for one that cannot be read, or lacks the vectors or postings of the old one.
        """
        with self._changing:
            old = self.reader
            if old.is_current():
                return False
            reader = self._open_reader()
            for part, had, has in (
                ("vectors", old.manifest.dense, reader.manifest.dense),
                ("postings", old.manifest.lucene, reader.manifest.lucene),
            ):
                if had and not has:  # of which a search that is open makes use
                    found = f"expected an index with {part}, as before, found one without; open it again"
                    raise IndexFormatError(f"{self.folder}: {found}")
            before, now = (
                (each.settings.get("encoder"), each.settings.get("tagger"), (each.dense or {}).get("encoder"))
                for each in (old.manifest, reader.manifest)
            )
            with self._loading:
                if before != now:
                    self._check_encoder(reader.manifest)
                    self._encoder = self._tagging = None
                self._reader = reader
            return True

    @property
    def encoder(self) -> Encoder:
        """The encoder of the index, for queries from outside, loaded when first used."""
        from qbe.index.source import GivenEncoder, matching_encoder
        from qbe.models.encoder import Encoder
        from qbe.models.session import HALF

        self.require_vectors()
        with self._loading:
            if self._encoder is None:
                files = matching_encoder(self.folder, self.manifest, self._encoder_name)
                try:
                    is_given = isinstance(files, GivenEncoder)
                    self._encoder = files if is_given else Encoder(files, self.threads)
                except MissingDependencyError as error:
                    if files.precision != HALF:
                        raise
                    # fp16 is made of this precision, which needs no package onnx
                    files = replace(files, precision=files.model.name.split(".")[1])
                    log.warning(
                        "%s: its papers were encoded in %s, queries are encoded in %s (%s)",
                        *(self.folder, HALF, files.precision, error),
                    )
                    self._encoder = Encoder(files, self.threads)
            return self._encoder

    def label_facets(self, paper: Paper, facets: str = "given") -> Paper:
        """Return a query's paper with its sentences labelled; see `label_and_encode`."""
        return self.label_and_encode(paper, facets)[0]

    def label_and_encode(self, paper: Paper, facets: str = "given") -> tuple[Paper, PaperVectors | None]:
        """Return a query's paper with its sentences labelled, and its vectors if labelling made them; with
        ``facets`` "given" its labels are kept, with "predicted" only those that a tagger predicted.
        """
        if facets not in ("given", "predicted"):
            raise UsageError(f"expected `facets` given or predicted, found {facets!r}")
        if paper.predicted or (paper.labelled and facets == "given"):
            return paper, None
        from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk

        has_vectors = self.manifest.dense is not None
        with self._loading:
            if self._tagging is None:
                tagger = Tagger.open(self._tagger_name or self.manifest.settings["tagger"])
                encoder = self.encoder if has_vectors else open_trunk(tagger)
                self._tagging = TaggingEncoder(encoder, tagger, "predicted")
            tagging = self._tagging
        labelled, vectors = tagging.encode_paper(paper)
        return labelled, vectors if has_vectors else None

    def vectors(self, paper: Paper) -> PaperVectors:
        """Return vectors of any paper: those stored for a paper of the index; any other is encoded."""
        stored = self.reader.stored_vectors(paper)
        return self.encoder.encode_paper(paper) if stored is None else stored

    def append(self, corpus: Corpus, *, reading: Reading | None = None, update: bool = False) -> Written:
        """Add papers, or ``update`` those of other content; see `qbe.index.update.append_papers`."""
        return self._changed("append_papers", corpus, reading=reading, update=update)

    def sync(self, corpus: Corpus, *, reading: Reading | None = None, overwrite: bool = False) -> Written:
        """Make the papers those of a corpus, by ``overwrite`` many; see `qbe.index.update.sync_papers`."""
        return self._changed("sync_papers", corpus, reading=reading, overwrite=overwrite)

    def delete(self, paper_ids: str | Iterable[str]) -> Written:
        """Delete a paper or several by id, all of them or none; see `qbe.index.update.delete_papers`."""
        return self._changed("delete_papers", [paper_ids] if isinstance(paper_ids, str) else paper_ids)

    def _changed(self, change: str, changed: Any, **named: Any) -> Written:
        from qbe.corpus.records import Reading
        from qbe.index import update
        from qbe.index.source import Execution

        if len(self.folders) > 1:
            raise UsageError("several indexes are opened for searching; open the one that is to be changed")
        if named:
            named["reading"] = named["reading"] or Reading()
            named |= {"encoder": self._encoder_name, "tagger": self._tagger_name}
        execution = Execution(self.threads)
        written: Written = getattr(update, change)(self.folder, changed, execution=execution, **named)
        self.refresh()
        return written


open_index = Index
