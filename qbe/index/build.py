"""Building an index: stage by stage beside its final place, resumable, put in place in one step."""

from __future__ import annotations

import logging
import os
import shutil
from importlib.metadata import version
from pathlib import Path

from qbe import _jvm
from qbe.corpus import read_corpus
from qbe.encode.encoder import Encoder
from qbe.errors import IndexBuildError, IndexFormatError, OutputError
from qbe.files import lock, output_error, publish_directory
from qbe.index.ann import plan, settled_stored
from qbe.index.candidates import write_candidates
from qbe.index.labels import describe_predictions
from qbe.index.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    STORED_AS,
    Manifest,
    describe_files,
    digest,
    read_manifest,
    write_manifest,
)
from qbe.index.papers import RECORDS, PaperStore, write_papers
from qbe.index.postings import write_postings
from qbe.index.progress import Progress, Silent
from qbe.index.settings import BuildSettings
from qbe.index.tagging import BuildTagger
from qbe.index.timings import Timings
from qbe.index.unfinished import STATE, State, describe_sources, discard_stale, read_state, save_state
from qbe.index.vectors import SHARDS, WHOLE, read_vectors, write_vectors
from qbe.models.encoder_files import resolve_encoder
from qbe.text.split import split_sentences

log = logging.getLogger(__name__)


def build_index(
    output: Path,
    settings: BuildSettings,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> Manifest:
    """Build an index at ``output``; it appears there whole or not at all.

    The work is done in a hidden folder beside it. When it is interrupted, what is finished stays
    there, and the same call with ``resume`` goes on and ends in an index of the same digest.
    Resuming a build that had ended gives its manifest. ``overwrite`` replaces an index (the old one
    serves until the new one is whole) and discards an unfinished build. ``timings`` is told the seconds
    of each stage that was run.

    Raises IndexBuildError when the target exists, another process builds it, or an unfinished build is
    in the way or is one of other inputs; CorpusError for a corpus that cannot be read; ModelError,
    JavaError and OutputError for what the stages need.
    """
    output = Path(os.path.realpath(output))  # "." has no name, and a link must stay
    staging = output.parent / f".{output.name}.building"
    with lock(output.parent / f".{output.name}.lock") as alone:
        if not alone:
            raise IndexBuildError(f"{output} is being built by another process; wait until it ends")
        try:
            finished = _check_target(output, staging, settings, overwrite, resume)
            if finished is None:
                discard_stale(staging, overwrite, resume)
                finished = _build(output, staging, settings, progress or Silent(), timings or Timings())
            return finished
        except (OSError, OutputError) as error:
            reason = output_error(staging, error) if isinstance(error, OSError) else error
            kept = "; what is finished is kept: go on with --resume" if (staging / STATE).exists() else ""
            raise OutputError(f"{reason}{kept}") from error
        finally:
            if not (staging / STATE).exists():  # nothing worth resuming
                shutil.rmtree(staging, ignore_errors=True)


def _check_target(
    output: Path, staging: Path, settings: BuildSettings, overwrite: bool, resume: bool
) -> Manifest | None:
    """None when there is something to build; the manifest when a build to resume has ended already."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        manifest = read_manifest(output)
    except IndexFormatError as error:
        raise IndexBuildError(
            f"expected no such path, or an index, at {output}: {error}; choose another --output, or remove it"
        ) from error
    (output / STATE).unlink(missing_ok=True)  # left by a build that was killed as it ended
    if overwrite:
        return None
    unfinished = (staging / STATE).exists()
    if resume and not unfinished and manifest.settings == settings.record() and _is_newer(output, settings):
        log.info("the build of %s had ended; nothing is left to do", output)
        return manifest
    advice = "go on replacing it with --overwrite --resume" if unfinished else "replace it with --overwrite"
    raise IndexBuildError(f"{output} is an index already; choose another --output, or {advice}")


def _is_newer(output: Path, settings: BuildSettings) -> bool:
    """Whether no corpus file has changed since the index was built."""
    built = (output / MANIFEST).stat().st_mtime_ns
    return all(facts[2] <= built for facts in describe_sources(settings.corpus) if len(facts) == 3)


def _build(
    output: Path, staging: Path, settings: BuildSettings, progress: Progress, timings: Timings
) -> Manifest:
    encoder = identity = None
    if settings.dense:
        files = resolve_encoder(settings.encoder, settings.precision)
        encoder, identity = Encoder(files, settings.threads), files.identity
    tagger = BuildTagger(settings)
    inputs = {
        "settings": settings.record(),
        "sources": describe_sources(settings.corpus),
        "encoder": identity,
    }
    state = read_state(staging, inputs)
    if state is None:
        if settings.bm25:
            _jvm.java_class("io.anserini.index.IndexCollection")  # no Java: told before the corpus is read
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        with timings.stage("papers"):
            split = timings.timed("splitting", split_sentences)
            papers = progress.papers(read_corpus(settings.corpus, split))
            counts = write_papers(staging, tagger.papers(papers))
            if encoder is not None:
                plan(settings.ann, counts.sentences, encoder.dimension)  # what does not fit is told now
            predicted = counts.papers - counts.labelled if settings.dense else 0
            state = {"inputs": inputs, "counts": {**counts._asdict(), "predicted": predicted}}
            state["tagger"] = tagger.identity(predicted)
            save_state(staging, state)
    store = PaperStore(staging, predictions=False)
    if settings.bm25 and "lucene" not in state:
        progress.stage("indexing with Lucene")
        with timings.stage("lucene"):
            state["lucene"] = write_postings(
                staging, store.read_from(0), settings.threads, settings.positions, settings.docvectors
            )
            save_state(staging, state)
    if encoder is not None:
        stored = settled_stored(settings.stored, state["counts"]["sentences"])
        if not (staging / WHOLE).exists() or (staging / SHARDS).exists():
            tagging = tagger.encoder(encoder, state["tagger"])
            with progress.encoding(len(store)) as advance, timings.stage("vectors"):
                write_vectors(staging, store, tagging, advance, stored)
            timings.seconds["tagging"] += tagging.tagging_seconds
        progress.stage("indexing with FAISS")
        with timings.stage("faiss"):
            similarity = encoder.files.card.convention.similarity
            vectors, layout = read_vectors(staging, stored)[0], PaperStore(staging).layout()
            ann = write_candidates(staging, vectors, layout, similarity, settings.ann, settings.threads)
        state["dense"] = {
            "encoder": identity,
            "dimension": encoder.dimension,
            "similarity": STORED_AS[similarity],
            "stored": stored,
            "ann": ann,
        }
    with timings.stage("files"):
        return _publish(staging, output, state)


def _publish(staging: Path, output: Path, state: State) -> Manifest:
    files = describe_files(staging, leave_out=(STATE, MANIFEST))
    tagger = state["tagger"]
    if tagger is not None:
        tagger = {**tagger, **describe_predictions(PaperStore(staging).layout())}
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        qbe_version=version("qbe"),
        settings=state["inputs"]["settings"],
        corpus={**state["counts"], "sha256": files[RECORDS]["sha256"]},
        lucene=state.get("lucene"),
        dense=state.get("dense"),
        tagger=tagger,
        files=files,
        digest=digest(files, state.get("lucene")),
    )
    write_manifest(staging, manifest)
    publish_directory(staging, output)
    (output / STATE).unlink()
    return manifest
