"""Building an index: stage by stage in a hidden folder, resumable, published as a generation at the end."""

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from qbe.corpus.records import AS_IT_COMES, REJECTED_SUFFIX, Reading, RejectedRecords
from qbe.corpus.sentences import split_sentences
from qbe.errors import CorpusError, IndexBuildError, IndexFormatError, check_package
from qbe.index import jvm, papers, store
from qbe.index.faiss import check_factory, write_faiss
from qbe.index.lucene import INPUT, write_input, write_lucene_index
from qbe.index.papers import FACET_CODES, LABELS, Papers, without_labels, write_papers
from qbe.index.source import BuildSettings, Corpus, Execution, GivenEncoder, Source, open_corpus
from qbe.index.store import Files, Manifest, resolve, resolve_stored
from qbe.index.vectors import SENTENCES, WHOLE, open_vectors, writing_rows, writing_vectors
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.types import Paper
from qbe.util.files import atomic_file, resumable_staging, sync_tree, write_text

log = logging.getLogger(__name__)

STATE = "build.json"
BLOCK = 512  # papers that are encoded between two notes of how far a build is: what a killed one may lose
_DISCARD = "discard it with `overwrite` alone"

State = dict[str, Any]  # inputs, counts, tagger, lucene once it is done, and how many papers are encoded
Identity = Mapping[str, str]


def build(
    output: Path,
    corpus: Corpus,
    settings: BuildSettings | None = None,
    *,
    reading: Reading | None = None,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Build an index at ``output``; it appears there complete or not at all.

    ``corpus`` is a path or ``hf:`` name, several of them, papers, or a `qbe.index.source.Source`; records
    that cannot be used are listed in ``OUTPUT.rejected.jsonl``. An interrupted build leaves what is finished
    in a hidden folder, with which ``resume`` goes on to the same digest. ``overwrite`` replaces an index, and
    discards an unfinished build.

    Raises IndexBuildError for an index or an unfinished build in the way, other inputs, or another writer;
    CorpusError for the corpus; ModelError, JavaError and OutputError.
    """
    source = open_corpus(corpus, reading or AS_IT_COMES)
    settings, execution = settings or BuildSettings(), execution or Execution()
    output = Path(os.path.realpath(output))  # "." has no name, and a link must stay
    staging = output.parent / f".{output.name}.building"
    with store.write_lock(output), resumable_staging(staging, (staging / STATE).exists):
        finished = _finished(output, staging, source, settings, overwrite, resume)
        if finished is not None:
            return finished
        models = BuildModels(settings, execution.threads)
        inputs: dict[str, Any] = {"settings": settings.record(source.names), "sources": source.facts}
        inputs |= {"encoder": models.identity, **({"reading": source.reading} if source.reading else {})}
        state = resumed_state(staging, inputs)
        if state is None:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            with recorded(output) as left_out:
                state = {"inputs": inputs, **read_papers(staging, source, models, execution, left_out)}
            if models.encoder is not None:  # settings that do not fit are refused before the long work
                resolve(settings.faiss, state["counts"]["sentences"], models.encoder.dimension)
            save_state(staging, state)
        else:
            log.info("going on with the unfinished build in %s", staging)
            models.before = state["tagger"]
        counts = state["counts"]
        if settings.bm25:
            if "lucene" not in state:
                state["lucene"] = write_lucene_index(staging, counts["papers"], settings, execution)
                save_state(staging, state)
            shutil.rmtree(staging / INPUT, ignore_errors=True)
        if models.encoder is not None:
            params = resolve(settings.faiss, counts["sentences"], models.encoder.dimension)
            stored = resolve_stored(settings.stored, counts["sentences"])
            tagging = TaggingEncoder(models.encoder, models.tagger if state["tagger"] else None)
            encode_papers(staging, tagging, stored, state, execution)
            vectors = open_vectors(Files(staging), SENTENCES, stored)
            state["dense"] = {
                "encoder": models.identity,
                "dimension": models.encoder.dimension,
                "similarity": store.STORED_AS[models.similarity],
                "stored": stored,
                **write_faiss(staging, vectors, models.similarity, params, execution),
            }
        manifest = describe(staging, state)
        (store.publish(staging, output) / STATE).unlink()
        store.clean(output)
        return manifest


def unfinished_build(output: Path) -> bool:
    """Return whether an interrupted build has left finished work, which another one can resume."""
    output = Path(os.path.realpath(output))
    return (output.parent / f".{output.name}.building" / STATE).exists()


def _finished(
    output: Path, staging: Path, source: Source, settings: BuildSettings, overwrite: bool, resume: bool
) -> Manifest | None:
    """Return the manifest of a finished build to resume; None when nothing is in the way of a build."""
    unfinished = (staging / STATE).exists()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        existing = None
        try:
            existing = store.read_manifest(output)
        except IndexFormatError as error:
            if not any((output / name).is_file() for name in store.FORMER):
                absent = isinstance(error.__cause__, FileNotFoundError)
                found = "other files" if absent else store.reason_of(error)
                raise IndexBuildError(
                    f"expected no such path, or an index, at {output}, found {found}; choose another "
                    "`folder`, or remove it"
                ) from error
        same = existing is not None and existing.settings == settings.record(source.names)
        if same and resume and not (overwrite or unfinished):
            log.info("%s is an index already, and no unfinished build of it is there to resume", output)
            return existing
        if not overwrite:
            go_on = "go on replacing it with `overwrite` and `resume`"
            how = go_on if unfinished else "replace it with `overwrite`"
            raise IndexBuildError(f"{output} is an index already; choose another `folder`, or {how}")
    if staging.exists() and not resume:
        if unfinished and not overwrite:
            message = f"{staging} holds an unfinished build; continue it with `resume`, or {_DISCARD}"
            raise IndexBuildError(message)
        shutil.rmtree(staging)
    return None


def resumed_state(staging: Path, inputs: Mapping[str, Any]) -> State | None:
    """Return the state of an unfinished build of these inputs, None where it was interrupted before."""
    try:
        state: State = json.loads((staging / STATE).read_text())
    except (OSError, ValueError):
        return None
    if (before := state.get("inputs", state)) != inputs:
        changed = ", ".join(key for key in inputs if before.get(key) != inputs[key])
        raise IndexBuildError(
            f"expected the corpus and settings of the unfinished build in {staging}, found other {changed}; "
            f"repeat the command as it was, or {_DISCARD}"
        )
    for path in staging.glob(".*.partial"):  # being written when the build was interrupted
        path.unlink()
    return state


def save_state(staging: Path, state: State) -> None:
    """Flush the files of a finished stage to the disk, then write the state."""
    sync_tree(staging)
    write_text(staging / STATE, json.dumps(state, indent=1))


class BuildModels:
    """The encoder of a build, None without vectors, and the tagger of its papers that have no labels."""

    def __init__(self, settings: BuildSettings, threads: int, before: Identity | None = None) -> None:
        """Load the encoder; ``before`` is the tagger that labelled papers so far."""
        self.settings, self.before = settings, before
        self.encoder: Encoder | None = None
        self.identity: dict[str, Any] | None = None
        if settings.dense:
            given: Any = settings.encoder
            if isinstance(given, str):
                given = Encoder(resolve_encoder(given, settings.precision), threads, settings.device)
            self.encoder, self.identity = given, given.files.identity
            self.similarity = given.files.metadata.encoder_format.similarity
            check_package("faiss")
            check_factory(settings.faiss, self.encoder.dimension, self.similarity)
        if settings.bm25:
            jvm.java_class("java.lang.Object")  # a missing Java is reported before the work

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger, opened at the first paper to be tagged."""
        tagger, before = Tagger.open(self.settings.tagger), self.before
        if before is not None and before != (found := tagger.identity):
            raise IndexBuildError(
                f"expected the tagger {before['name']} ({before['sha256'][:12]}) that labelled the papers so "
                f"far, found {found['name']} ({found['sha256'][:12]}); put that one back, or "
                "build the index anew with `overwrite`"
            )
        return tagger

    def prepare(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Yield papers as they are to be stored; open the tagger at the first one to be tagged."""
        for paper in papers:
            if self.settings.dense and self.settings.facets == "predicted":
                paper = without_labels(paper)
            if self.settings.dense and not paper.labelled:
                _ = self.tagger
            yield paper


def read_papers(
    folder: Path, source: Source, models: BuildModels, execution: Execution, left_out: RejectedRecords
) -> State:
    """Read the corpus, split into sentences; return ``counts`` and ``tagger`` of a build's state."""

    def read() -> Iterator[Paper]:
        with execution.progress("reading", "papers") as advance:
            for paper in source.papers(split_sentences, left_out):
                yield paper
                advance(1)

    papers = models.prepare(read())
    counts = write_papers(folder, write_input(folder, papers) if models.settings.bm25 else papers)
    predicted = 0 if models.encoder is None else counts["papers"] - counts["labelled"]
    skipped = {"left_out": left_out.counts()} if left_out else {}
    reading = {"reading": source.reading} if source.reading else {}
    return {
        "counts": {**counts, "predicted": predicted, **reading, **skipped},
        "tagger": models.tagger.identity if predicted else None,
    }


def encode_papers(
    folder: Path, tagging: TaggingEncoder, stored: str, state: State, execution: Execution
) -> None:
    """Write vectors and predicted facets of the papers behind those that ``state`` says are ``encoded``."""
    files, done = Files(folder), state.get("encoded", 0)
    records, starts = Papers(files, predictions=False), files.array(papers.STARTS_FILE, "int64", 1)
    count, dimension = len(records), tagging.encoder.dimension
    total, first = int(starts[-1]), int(starts[done])
    similarity = tagging.encoder.files.metadata.encoder_format.similarity
    if isinstance(tagging.encoder, GivenEncoder):
        tagging.encoder.check_count(count)
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(execution.progress("encoding", "papers", count))
        advance(done)
        enter = stack.enter_context
        writers: list[Callable[[Any], Any]] = [
            enter(writing_vectors(folder, SENTENCES, (total, dimension), stored, similarity, first)),
            enter(writing_vectors(folder, WHOLE, (count, dimension), stored, similarity, done)),
        ]
        if tagging.tagger is not None:
            shares_file = folder / papers.PROBABILITIES_FILE
            writers.append(enter(writing_rows(folder / papers.FACETS_FILE, (total,), np.uint8, first)))
            writers.append(enter(writing_rows(shares_file, (total, LABELS), np.float16, first)))
        # One stream: what encodes may read ahead beyond the end of a block.
        encoded = tagging.encode(records.read_from(done) if done < count else ())
        while done < count:
            block = []  # of each paper, in the order of the writers
            for paper, vectors in islice(encoded, BLOCK):
                shares = [each.probabilities or (0.0,) * LABELS for each in paper.sentences]
                facets = np.array([FACET_CODES.index(each.facet) for each in paper.sentences], np.uint8)
                sides = vectors.sentences.astype(np.float16), vectors.whole.astype(np.float16)[None]
                block.append((*sides, facets, np.array(shares, np.float16)))
                advance(1)
            for write, array in zip(writers, map(np.concatenate, zip(*block, strict=True)), strict=False):
                write(array)
            done += len(block)
            save_state(folder, state | {"encoded": done})


def describe(folder: Path, state: State) -> Manifest:
    """Describe the finished files of a folder in a manifest there."""
    files = store.describe_files(folder, leave_out=(STATE, store.MANIFEST))
    manifest = Manifest(
        format_version=store.FORMAT_VERSION,
        qbe_version=version("qbe"),
        settings=state["inputs"]["settings"],
        corpus={**state["counts"], "sha256": files[store.RECORDS]["sha256"]},
        lucene=state.get("lucene"),
        dense=state.get("dense"),
        tagger=state["tagger"],
        files=files,
        digest=store.digest(files, state.get("lucene")),
    )
    store.write_manifest(folder, manifest)
    return manifest


def rejected_file(output: Path) -> Path:
    """Where the records that were left out of an index are listed."""
    output = Path(os.path.realpath(output))  # the current folder has a name, too
    return output.with_name(output.name + REJECTED_SUFFIX)


@contextlib.contextmanager
def recorded(output: Path, *, keeps: bool = False) -> Iterator[RejectedRecords]:
    """List the records that the block leaves out, behind those of earlier ones where the list ``keeps``."""
    listed, failure = rejected_file(output), None
    with tempfile.TemporaryFile() as stream:
        left_out = RejectedRecords(stream)
        try:
            yield left_out
        except CorpusError as error:
            if not left_out:
                raise
            failure = CorpusError(f"{error} ({listed} lists them)")
        stream.seek(0)
        before = listed.read_bytes() if keeps and listed.exists() else b""
        if lines := before + stream.read():
            with atomic_file(listed) as file:
                file.write(lines)
        else:
            listed.unlink(missing_ok=True)
    if failure is not None:
        raise failure
