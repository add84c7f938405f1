"""Building an index: stage by stage beside its final place, resumable, put in place in one step."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from qbe import _jvm
from qbe.encode.encoder import Encoder
from qbe.errors import IndexBuildError, IndexFormatError
from qbe.index.building.guard import guarded
from qbe.index.building.progress import Progress, Silent
from qbe.index.building.publishing import publish
from qbe.index.building.settings import BuildSettings
from qbe.index.building.source import CorpusSource, Source
from qbe.index.building.tagging import BuildTagger, Identity
from qbe.index.building.timings import Timings
from qbe.index.building.unfinished import STATE, read_state, save_state
from qbe.index.dense.ann import AnnSettings, checked, fitting, settled_stored
from qbe.index.dense.candidates import write_candidates
from qbe.index.dense.vectors import SHARDS, WHOLE, read_vectors, write_vectors
from qbe.index.lucene import write_postings
from qbe.index.manifest import MANIFEST, STORED_AS, Manifest, read_manifest
from qbe.index.papers import PaperStore, write_papers
from qbe.index.segments.commit import read_commit
from qbe.models.encoder_files import resolve_encoder
from qbe.text.split import split_sentences

Settle = Callable[[AnnSettings, int, int], AnnSettings]
"""What becomes of the settings for so many sentences of some dimension."""

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
    source = CorpusSource(settings.corpus)
    return build_from(source, output, settings, overwrite, resume, progress, timings)


def build_from(
    source: Source,
    output: Path,
    settings: BuildSettings,
    overwrite: bool,
    resume: bool,
    progress: Progress | None,
    timings: Timings | None,
) -> Manifest:
    """What `build_index` does, with papers from any source."""

    def ended(output: Path, staging: Path) -> Manifest | None:
        return _check_target(output, staging, settings, source, overwrite, resume)

    def build(output: Path, staging: Path) -> Manifest:
        return _build(output, staging, settings, source, progress or Silent(), timings or Timings())

    return guarded(output, ended, build, overwrite=overwrite, resume=resume)


def build_segment(
    source: Source,
    folder: Path,
    settings: BuildSettings,
    tagger: Identity | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Build an index at ``folder``, where nothing is, as a segment of another one; nothing is resumed.

    Where it has too few sentences for the settings' FAISS index, its own is exact.
    ``tagger`` is the identity of the one whose labels the other segments have, if any. Raises what
    `build_index` does and what ``source`` does; then nothing is left behind.
    """
    staging = folder.parent / f".{folder.name}.building"
    try:
        return _build(folder, staging, settings, source, progress or Silent(), Timings(), fitting, tagger)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_target(
    output: Path, staging: Path, settings: BuildSettings, source: Source, overwrite: bool, resume: bool
) -> Manifest | None:
    """None when there is something to build; the manifest when a build to resume has ended already."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        commit = read_commit(output)
        manifest = read_manifest(output) if commit is None else None
    except IndexFormatError as error:
        raise IndexBuildError(
            f"expected no such path, or an index, at {output}: {error}; choose another --output, or remove it"
        ) from error
    (output / STATE).unlink(missing_ok=True)  # left by a build that was killed as it ended
    if overwrite:
        return None
    unfinished = (staging / STATE).exists()
    same = manifest is not None and manifest.settings == settings.record()  # and not written to since
    if resume and not unfinished and same and _is_newer(output, source):
        log.info("the build of %s had ended; nothing is left to do", output)
        return manifest
    advice = "go on replacing it with --overwrite --resume" if unfinished else "replace it with --overwrite"
    raise IndexBuildError(f"{output} is an index already; choose another --output, or {advice}")


def _is_newer(output: Path, source: Source) -> bool:
    """Whether an index is younger than all that it was made of."""
    return source.newest() <= (output / MANIFEST).stat().st_mtime_ns


def _build(
    output: Path,
    staging: Path,
    settings: BuildSettings,
    source: Source,
    progress: Progress,
    timings: Timings,
    settle: Settle = checked,
    wanted: Identity | None = None,
) -> Manifest:
    encoder = identity = None
    if settings.dense:
        files = resolve_encoder(settings.encoder, settings.precision)
        encoder, identity = Encoder(files, settings.threads, settings.device), files.identity
    tagger = BuildTagger(settings, wanted)
    inputs = {
        "settings": settings.record(),
        "sources": source.describe(),
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
            papers = progress.papers(source.papers(split))
            counts = write_papers(staging, tagger.papers(papers))
            if encoder is not None:
                settle(settings.ann, counts.sentences, encoder.dimension)  # what does not fit is told now
            predicted = counts.papers - counts.labelled if settings.dense else 0
            state = {"inputs": inputs, "counts": {**counts._asdict(), "predicted": predicted}}
            state["tagger"] = tagger.identity(predicted)
            source.ready(staging, counts, state["tagger"])
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
            similarity = encoder.files.card.encoder_format.similarity
            vectors, layout = read_vectors(staging, stored)[0], PaperStore(staging).layout()
            asked = settle(settings.ann, *vectors.shape)
            ann = write_candidates(staging, vectors, layout, similarity, asked, settings.threads)
        state["dense"] = {
            "encoder": identity,
            "dimension": encoder.dimension,
            "similarity": STORED_AS[similarity],
            "stored": stored,
            "ann": ann,
        }
    with timings.stage("files"):
        return publish(staging, output, state)
