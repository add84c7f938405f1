"""Building an index: stage by stage in a hidden folder, resumable, published as a generation at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.corpus.records import AS_IT_COMES, Reading
from qbe.corpus.rejected import SUFFIX, RejectedRecords
from qbe.corpus.sentences import split_sentences
from qbe.errors import CorpusError, IndexBuildError, IndexFormatError, check_package
from qbe.index import jvm as _jvm
from qbe.index.faiss import check_factory, write_faiss
from qbe.index.lucene import INPUT, write_input, write_lucene_index
from qbe.index.papers import (
    FACETS_FILE,
    PROBABILITIES_FILE,
    STARTS_FILE,
    Papers,
    facet_codes,
    without_labels,
    write_papers,
)
from qbe.index.params import FLOAT16, FaissParams, resolve, resolve_stored
from qbe.index.source import BuildSettings, Corpus, Execution, Source, open_corpus
from qbe.index.store import (
    COMMIT,
    FORMAT_VERSION,
    MANIFEST,
    RECORDS,
    STORED_AS,
    Manifest,
    clean,
    current,
    describe_files,
    digest,
    publish,
    read_manifest,
    reason_of,
    seal,
    write_lock,
)
from qbe.index.vectors import (
    SENTENCES,
    WHOLE,
    Half,
    Quantized,
    npy_header,
    quantized,
    read_vectors,
    scales_file,
)
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.types import FacetProbabilities, Paper
from qbe.util.files import atomic_file, resumable_staging, resumed_state, sync_tree, write_text

log = logging.getLogger(__name__)

STATE = "build.json"
_WORK = ("build", "the corpus and settings", "discard it with `overwrite` alone", IndexBuildError)
REJECTED = "rejected.jsonl"
"""The list of records that were left out, within an unfinished build."""
BLOCK = 512
"""Papers that are encoded between two notes of how far a build is: what a killed one may lose."""

LABELS = len(FacetProbabilities._fields)

State = dict[str, Any]
"""``inputs`` (settings, sources, encoder), ``counts``, ``tagger``, ``lucene`` once it is done, and how many
papers are ``encoded``.
"""
Identity = dict[str, str]


def build(
    output: Path,
    corpus: Corpus,
    settings: BuildSettings | None = None,
    *,
    reading: Reading = AS_IT_COMES,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Build an index at ``output``; it appears there complete or not at all.

    ``corpus`` is a path or ``hf:`` name, several of them, papers (`qbe.types.Paper`), or a
    `qbe.index.source.Source`. ``reading`` says how files are read: their format, which papers are kept, and
    what is done with records that cannot be used; those that are left out are listed in the file
    ``OUTPUT.rejected.jsonl``, and counted in the manifest.

    The work is done in a hidden folder next to ``output``. When it is interrupted, what is finished stays
    there, and the same call with ``resume`` goes on and ends in an index of the same digest. Resuming a build
    that had ended returns its manifest. ``overwrite`` replaces an index (the old one can be read until the
    new one is complete) and discards an unfinished build. Returns the manifest.

    Raises IndexBuildError when the target exists, another process builds it, or an unfinished build is in the
    way or has other inputs; TypeError and CorpusError for a corpus that cannot be read; ModelError, JavaError
    and OutputError for what the stages need.

    >>> papers = [index.paper("s001"), index.paper("s002")]
    >>> build(Path("indexes/two"), papers, BuildSettings(dense=False)).corpus["papers"]
    2
    """
    source = open_corpus(corpus, reading)
    settings, execution = settings or BuildSettings(), execution or Execution()
    output = Path(os.path.realpath(output))  # "." has no name, and a link must stay
    check_replaceable(output)
    staging = _staging(output)
    with write_lock(output), resumable_staging(staging, (staging / STATE).exists):
        finished = _finished(output, source, settings, overwrite=overwrite, resume=resume)
        if finished is not None:
            return finished
        models = BuildModels(settings, execution.threads)
        inputs = {
            "settings": settings.record(source.origin.names),
            "sources": source.origin.facts,
            "encoder": models.identity,
            **({"reading": source.origin.reading} if source.origin.reading else {}),
        }
        state = _read_state(staging, inputs)
        if state is None:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            with recorded(staging, output) as left_out:
                state = {
                    "inputs": inputs,
                    **read_papers(staging, source, models, execution, left_out, lucene=settings.bm25),
                }
            if models.encoder is not None:  # settings that do not fit are refused before the long work
                resolve(settings.faiss, state["counts"]["sentences"], models.encoder.dimension)
            save_state(staging, state)
        if settings.bm25:
            if "lucene" not in state:
                state["lucene"] = build_lucene(staging, state["counts"]["papers"], settings, execution)
                save_state(staging, state)
            shutil.rmtree(staging / INPUT, ignore_errors=True)
        if models.encoder is not None:
            sentences = state["counts"]["sentences"]
            params = resolve(settings.faiss, sentences, models.encoder.dimension)
            stored = resolve_stored(settings.stored, sentences)
            encode_papers(staging, models.tagging_encoder(state["tagger"]), stored, state, execution)
            faiss = build_faiss(staging, stored, params, models.similarity, execution)
            state["dense"] = {
                "encoder": models.identity,
                "dimension": models.encoder.dimension,
                "similarity": STORED_AS[models.similarity],
                "stored": stored,
                **faiss,
            }
        if (staging / REJECTED).exists():  # else of a build that was killed after this point
            add_rejected(staging, rejected_file(output), keeps=False)
        manifest = describe(staging, state)
        folder = publish(staging, output)
        (folder / STATE).unlink()
        clean(output)
        return manifest


def unfinished_build(output: Path) -> bool:
    """Whether an interrupted build at ``output`` has left finished work, which another one can resume."""
    return (_staging(Path(os.path.realpath(output))) / STATE).exists()


def _staging(output: Path) -> Path:
    return output.parent / f".{output.name}.building"


def _finished(
    output: Path, source: Source, settings: BuildSettings, *, overwrite: bool, resume: bool
) -> Manifest | None:
    """The manifest when a build to resume has ended already; None when there is something to build, and no
    unfinished build is in the way any more. Raises IndexBuildError.
    """
    staging = _staging(output)
    unfinished = (staging / STATE).exists()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        existing = None
        if not (output / COMMIT).is_file():  # else of an older version, and perhaps not readable
            try:
                existing = read_manifest(output)
            except IndexFormatError as error:
                found = "other files" if isinstance(error.__cause__, FileNotFoundError) else reason_of(error)
                raise IndexBuildError(
                    f"expected no such path, or an index, at {output}, found {found}; choose another "
                    "`folder`, or remove it"
                ) from error
        if existing is not None and resume and not overwrite and not unfinished:
            same = existing.settings == settings.record(source.origin.names)
            same = same and existing.corpus.get("reading", {}) == source.origin.reading
            same = same and "updates" not in existing.corpus
            if same and source.origin.changed <= (current(output) / MANIFEST).stat().st_mtime_ns:
                log.info("the build of %s had ended; nothing is left to do", output)
                return existing
        if not overwrite:
            how = "replace it with `overwrite`"
            if unfinished:
                how = "go on replacing it with `overwrite` and `resume`"
            raise IndexBuildError(f"{output} is an index already; choose another `folder`, or {how}")
    if staging.exists() and not resume:
        if unfinished and not overwrite:
            resumed_state(staging / STATE, None, *_WORK)
        shutil.rmtree(staging)
    return None


def save_state(staging: Path, state: State) -> None:
    """Flush the files of a finished stage to the disk, then write the state."""
    sync_tree(staging)
    write_text(staging / STATE, json.dumps(state, indent=1))


def _read_state(staging: Path, inputs: dict[str, Any]) -> State | None:
    """The state of an unfinished build of the same inputs; None where no stage was finished."""
    state = resumed_state(staging / STATE, inputs, *_WORK)
    if state is None:
        return None
    log.info("going on with the unfinished build in %s", staging)
    return state


class BuildModels:
    """The encoder of a build, None without vectors, and which of its papers are tagged, by which tagger."""

    def __init__(
        self, settings: BuildSettings, threads: int, expected_tagger: Identity | None = None
    ) -> None:
        """Load the encoder. ``expected_tagger`` is the identity that the tagger must have, if one is needed.

        Raises what `qbe.models.encoder.Encoder` does, UsageError for a factory string that FAISS does
        not take, and JavaError where Java is needed and missing.
        """
        self._settings, self._expected_tagger = settings, expected_tagger
        self.encoder: Encoder | None = None
        self.identity: dict[str, Any] | None = None
        if settings.dense:
            files = resolve_encoder(settings.encoder, settings.precision)
            self.encoder, self.identity = Encoder(files, threads, settings.device), files.identity
            self.similarity = files.metadata.encoder_format.similarity
            check_package("faiss")
            check_factory(settings.faiss, self.encoder.dimension, self.similarity)
        if settings.bm25:
            _jvm.java_class("java.lang.Object")  # a missing Java is reported before the work

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger, opened at the first paper to be tagged."""
        tagger = Tagger.open(self._settings.tagger)
        expected = self._expected_tagger
        if expected is not None and expected != tagger.identity:
            raise IndexBuildError(
                f"expected the tagger {expected['name']} ({expected['sha256'][:12]}) that labelled "
                f"the index's papers, found {tagger.metadata.name} ({tagger.identity['sha256'][:12]}); give "
                "that one as `tagger`, or build the index again"
            )
        return tagger

    def prepare(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Papers as the index is to store them: without given labels where all are predicted. Opens the
        tagger at the first paper to be tagged: raises ModelError, or IndexBuildError when it is not the
        expected one.
        """
        drops_labels = self._settings.dense and self._settings.facets == "predicted"
        for paper in papers:
            kept = without_labels(paper) if drops_labels else paper
            if self._settings.dense and not kept.labelled:
                _ = self.tagger  # opened once
            yield kept

    def tagging_encoder(self, tagger: Identity | None) -> TaggingEncoder:
        """The encoder, with the tagger of that identity, or with none.

        Raises IndexBuildError where the tagger was exchanged since an unfinished build began.
        """
        assert self.encoder is not None
        if tagger is None:
            return TaggingEncoder(self.encoder, None)
        current = self.tagger.identity
        if current != tagger:
            raise IndexBuildError(
                f"expected the tagger {tagger['name']} ({tagger['sha256'][:12]}) as when the build "
                f"began, found {current['name']} ({current['sha256'][:12]}); put that one back, or "
                "discard the build with `overwrite` alone"
            )
        return TaggingEncoder(self.encoder, self.tagger)


def read_papers(
    folder: Path,
    source: Source,
    models: BuildModels,
    execution: Execution,
    left_out: RejectedRecords,
    *,
    lucene: bool,
) -> State:
    """The stage that reads the corpus, split into sentences, into an empty folder, and where there is to be a
    Lucene index, its input. Returns the ``counts`` and the ``tagger`` of a build's state.
    """
    read = execution.progress.papers(source.papers(split_sentences, left_out), source.share_read)
    papers = models.prepare(read)
    counts = write_papers(folder, write_input(folder, papers) if lucene else papers)
    predicted = 0 if models.encoder is None else counts.papers - counts.labelled
    skipped = {"left_out": left_out.counts()} if left_out else {}
    reading = {"reading": source.origin.reading} if source.origin.reading else {}
    return {
        "counts": {**counts._asdict(), "predicted": predicted, **reading, **skipped},
        "tagger": models.tagger.identity if predicted else None,
    }


def encode_papers(
    folder: Path, tagging: TaggingEncoder, stored: str, state: State, execution: Execution
) -> None:
    """The stage of vectors and, out of the same pass, of predicted facets; begins behind the papers that
    ``state`` says are ``encoded``, and saves how many are after each BLOCK.
    """
    store, done = Papers(folder, predictions=False), state.get("encoded", 0)
    starts = np.load(folder / STARTS_FILE)
    dimension = tagging.encoder.dimension
    similarity = tagging.encoder.files.metadata.encoder_format.similarity
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(execution.progress.steps("encoding", "papers", len(store)))
        advance(done)
        writers: list[Callable[[Any], Any]] = [
            stack.enter_context(
                writing_vectors(folder, name, (rows, dimension), stored, similarity, finished)
            )
            for name, rows, finished in (
                (SENTENCES, int(starts[-1]), int(starts[done])),
                (WHOLE, len(store), done),
            )
        ]
        if tagging.tagger is not None:
            for name, shape, kind in (
                (FACETS_FILE, (int(starts[-1]),), np.uint8),
                (PROBABILITIES_FILE, (int(starts[-1]), LABELS), np.float16),
            ):
                writers.append(
                    stack.enter_context(writing_rows(folder / name, shape, kind, int(starts[done])))
                )
        # One stream: what encodes may read ahead beyond the end of a block.
        encoded = tagging.encode(store.read_from(done) if done < len(store) else ())
        while done < len(store):
            papers: list[tuple[NDArray[Any], ...]] = []  # of each paper, in the order of the writers
            for paper, vectors in islice(encoded, BLOCK):
                arrays = vectors.sentences.astype(np.float16), vectors.whole.astype(np.float16)[None]
                papers.append((*arrays, np.frombuffer(facet_codes(paper), np.uint8), _probabilities(paper)))
                advance(1)
            for write, array in zip(writers, map(np.concatenate, zip(*papers, strict=True)), strict=False):
                write(array)
            done += len(papers)
            save_state(folder, state | {"encoded": done})


def _probabilities(paper: Paper) -> Half:
    unknown = (0.0,) * LABELS
    return np.array([sentence.probabilities or unknown for sentence in paper.sentences], dtype=np.float16)


@contextlib.contextmanager
def writing_rows(
    path: Path, shape: tuple[int, ...], kind: Any, done: int = 0
) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Write a ``.npy`` file block by block, from the row ``done`` on: gives a function that writes the next
    rows.

    Plain writes, not a memory map: on a full disk they raise OSError, where a map would end the process.
    """
    header = npy_header(shape, np.dtype(kind))
    end = len(header) + done * int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(kind).itemsize
    with path.open("r+b" if done else "wb") as stream:
        if done:
            if path.stat().st_size < end:
                raise IndexBuildError(
                    f"{path}: expected {done} rows, found fewer; build with `overwrite` alone"
                )
            stream.truncate(end)
            stream.seek(end)
        else:
            stream.write(header)

        def write(rows: NDArray[Any]) -> None:
            stream.write(np.ascontiguousarray(rows, kind).data)
            stream.flush()

        yield write


@contextlib.contextmanager
def writing_vectors(
    folder: Path, name: str, shape: tuple[int, int], stored: str, similarity: str, done: int = 0
) -> Iterator[Callable[[Half | Quantized], None]]:
    """Write the file ``name``, and that of its scales, as `writing_rows` does; vectors that are quantized
    already are written as they are. ``stored`` is one of `qbe.index.params.STORED`.
    """
    if stored == FLOAT16:
        with writing_rows(folder / name, shape, np.float16, done) as write:
            yield write  # type: ignore[misc]
        return
    with (
        writing_rows(folder / name, shape, np.int8, done) as codes,
        writing_rows(folder / scales_file(name), shape[:1], np.float16, done) as scales,
    ):

        def write_both(block: Half | Quantized) -> None:
            numbers = block if isinstance(block, Quantized) else quantized(block, similarity)
            codes(numbers.codes)
            scales(numbers.scales)

        yield write_both


def build_lucene(folder: Path, papers: int, settings: BuildSettings, execution: Execution) -> dict[str, Any]:
    """The stage of Lucene, over the input that `write_input` left, which stays."""
    execution.progress.stage("indexing with Lucene")
    return write_lucene_index(folder, papers, execution.threads, settings.positions, settings.docvectors)


def build_faiss(
    folder: Path,
    stored: str,
    params: FaissParams,
    similarity: str,
    execution: Execution,
    learned: tuple[Path, bool, int] | None = None,
) -> dict[str, Any]:
    """The stage of FAISS: what the manifest says of it. ``learned`` is an index whose centroids and codes are
    kept, whether its vectors are, too, and the number of sentences when it was trained.
    """
    vectors = read_vectors(folder, stored)[0]
    with execution.progress.steps("indexing with FAISS", "vectors", len(vectors)) as advance:
        before, kept, trained = learned or (None, False, len(vectors))
        write_faiss(folder, vectors, similarity, params, execution.threads, advance, before, kept)
    if params.nlist is None and not params.by_codes:
        return {"ann": params.record()}
    return {"ann": params.record(), "trained": trained}


def describe(folder: Path, state: State) -> Manifest:
    """Describe the finished files of a folder in a manifest there."""
    files = describe_files(folder, leave_out=(STATE, MANIFEST))
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        qbe_version=version("qbe"),
        settings=state["inputs"]["settings"],
        corpus={**state["counts"], "sha256": files[RECORDS]["sha256"]},
        lucene=state.get("lucene"),
        dense=state.get("dense"),
        tagger=state["tagger"],
        files=files,
        digest=digest(files, state.get("lucene")),
    )
    write_text(folder / MANIFEST, seal(dataclasses.asdict(manifest)))
    return manifest


def rejected_file(output: Path) -> Path:
    """Where the records that were left out of an index are listed."""
    output = Path(os.path.realpath(output))  # the current folder has a name, too
    return output.with_name(output.name + SUFFIX)


def check_replaceable(output: Path) -> None:
    """Raise IndexBuildError where a file that is not qbe's is in the place of that list."""
    path = rejected_file(output)
    if not path.exists():
        return
    try:
        with path.open(encoding="utf-8") as stream:
            line = stream.readline()
        is_replaceable = not line or set(json.loads(line)) == {"where", "reason", "message"}
    except (OSError, ValueError, TypeError):
        is_replaceable = False
    if not is_replaceable:
        raise IndexBuildError(
            f"expected no file, or an earlier list of skipped records, at {path}, found another file; "
            "move it away, or choose another `folder`"
        )


@contextlib.contextmanager
def recorded(folder: Path, output: Path, *, keeps: bool = False) -> Iterator[RejectedRecords]:
    """Records that are left out, listed in the folder of an unfinished build; where the corpus then cannot be
    used, beside the index ``output``, behind what is listed there already where that ``keeps`` its list.
    """
    with (folder / REJECTED).open("wb") as stream:
        left_out = RejectedRecords(stream)
        try:
            yield left_out
        except CorpusError as error:
            stream.flush()
            if left_out:
                listed = rejected_file(output)
                add_rejected(folder, listed, keeps=keeps)
                raise CorpusError(f"{error} ({listed} lists them)") from None
            raise


def add_rejected(folder: Path, listed: Path, *, keeps: bool) -> None:
    """Move the list of an unfinished build in the place of another, or to its end where it ``keeps`` its
    lines. Raises OutputError.
    """
    path = folder / REJECTED
    lists = [each for each in ((listed, path) if keeps else (path,)) if each.exists() and each.stat().st_size]
    if not lists:
        listed.unlink(missing_ok=True)
    else:
        with atomic_file(listed) as stream:
            for each in lists:
                with each.open("rb") as lines:
                    shutil.copyfileobj(lines, stream)
    path.unlink()
