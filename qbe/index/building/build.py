"""Building an index: stage by stage in a hidden folder, resumable, put in place in one step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbe import _jvm
from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.errors import check_package
from qbe.index.building import shards, stages
from qbe.index.building.models import BuildModels, Identity
from qbe.index.building.rejected import check_replaceable, publish_rejected, recorded
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Corpus, Source, open_corpus
from qbe.index.building.stages import publish
from qbe.index.building.staging import Place, State, build_place, check_target, read_state, save_state
from qbe.index.dense.ann import FaissParams, Learned, SharedDense, resolve, resolve_or_exact, resolve_stored
from qbe.index.dense.faiss_build import check_factory
from qbe.index.dense.vectors import WHOLE
from qbe.index.manifest import MANIFEST, STORED_AS, Manifest
from qbe.index.segments.commit import Commit

Resolve = Callable[[str, int, int], FaissParams]
"""Makes parameters of a factory string, the number of sentences and the dimension, or raises UsageError."""


def build(
    output: Path,
    corpus: Corpus | Source,
    settings: BuildSettings | None = None,
    *,
    reading: Reading = AS_IT_COMES,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Build an index at ``output``; it appears there complete or not at all.

    ``corpus`` is a path or ``hf:`` name, several of them, papers (`qbe.types.Paper`), or a
    `qbe.index.building.source.Source`. ``reading`` says how files are read: their format, which papers are
    kept, and what is done with records that cannot be used; those that are left out are listed in the file
    ``OUTPUT.rejected.jsonl``, and counted in the manifest.

    The work is done in a hidden folder next to ``output``. When it is interrupted, what is finished stays
    there, and the same call with ``resume`` goes on and ends in an index of the same digest. Resuming a build
    that had ended returns its manifest. ``overwrite`` replaces an index (the old one can be read until the
    new one is complete) and discards an unfinished build. Returns the manifest.

    Raises IndexBuildError when the target exists or holds files that are not an index's, another process
    builds it, or an unfinished build is in the way or has other inputs; TypeError and CorpusError for a
    corpus that cannot be read; ModelError, JavaError and OutputError for what the stages need.

    >>> papers = [index.paper("s001"), index.paper("s002")]
    >>> build(Path("indexes/two"), papers, BuildSettings(dense=False)).corpus["papers"]
    2
    """
    source = corpus if isinstance(corpus, Source) else open_corpus(corpus, reading)
    settings, execution = settings or BuildSettings(), execution or Execution()
    check_replaceable(output)
    with build_place(output) as place:
        finished = check_target(
            place,
            lambda existing: _is_built(existing, place.output, settings, source),
            overwrite=overwrite,
            resume=resume,
        )
        if isinstance(finished, Manifest):
            return finished
        manifest = _run(place, source, settings, execution)
        assert manifest is not None  # a source without a paper is refused
        return manifest


def build_segment(
    source: Source,
    folder: Path,
    settings: BuildSettings,
    execution: Execution,
    tagger: Identity | None = None,
    index: Path | None = None,
    shared: SharedDense | None = None,
) -> Manifest | None:
    """Build an index at ``folder``, where nothing is, as a segment of another one; nothing is resumed.

    Returns None, and leaves no segment, where the source has no paper. Where a segment has too few sentences
    for the settings' FAISS index, its own is exact. ``tagger`` is the identity of the tagger that labelled
    the other segments, if any; ``index`` the folder of the whole. Records that are left out are listed beside
    the segment, for `qbe.index.building.rejected.add_rejected`, and where the
    corpus cannot be used, beside the whole. ``shared`` is what all segments have in common, which overrides
    the settings for vectors. Raises what `build` and ``source`` do; then nothing is left behind.
    """
    staging = folder.parent / f".{folder.name}.building"
    try:
        place = Place(folder, staging, index or folder)
        return _run(place, source, settings, execution, resolve_or_exact, tagger, shared)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _is_built(existing: Commit | Manifest, output: Path, settings: BuildSettings, source: Source) -> bool:
    """Whether what is there is what this build makes, and was never updated."""
    return (
        isinstance(existing, Manifest)
        and stages.is_same(existing.settings, existing.corpus, settings, source.origin)
        and source.origin.changed <= (output / MANIFEST).stat().st_mtime_ns
    )


def _run(
    place: Place,
    source: Source,
    settings: BuildSettings,
    execution: Execution,
    resolve_faiss: Resolve = resolve,
    expected_tagger: Identity | None = None,
    shared: SharedDense | None = None,
) -> Manifest | None:
    """All stages that an unfinished build has not finished, in order; None where the source has no paper."""
    staging = place.staging
    models = BuildModels(settings, execution.threads, expected_tagger)
    inputs = stages.inputs(source.origin, settings, models)
    state = read_state(staging, inputs)
    if state is None:
        if models.encoder is not None:
            check_package("faiss")
            encoder_format = models.encoder.files.metadata.encoder_format
            check_factory(settings.faiss, models.encoder.dimension, encoder_format.similarity)
        if settings.bm25:
            _jvm.java_class("java.lang.Object")  # a missing Java is reported before the work
        state = _write_papers(place, source, settings, models, inputs, resolve_faiss, execution)
    if not state["counts"]["papers"]:
        publish_rejected(place)
        return None
    if settings.bm25:
        if "lucene" not in state:
            count = state["counts"]["papers"]
            state["lucene"] = stages.build_lucene(
                staging, count, execution, settings.positions, settings.docvectors
            )
            save_state(staging, state)
        stages.drop_lucene_input(staging)
    if models.encoder is not None:
        sentences = state["counts"]["sentences"]
        stored = shared.stored if shared else resolve_stored(settings.stored, sentences)
        _encode_and_label(staging, models, state, stored, execution)
        similarity = models.encoder.files.metadata.encoder_format.similarity
        dimension = models.encoder.dimension
        learned = shared.learned if shared else Learned(resolve_faiss(settings.faiss, sentences, dimension))
        state["dense"] = {
            "encoder": models.encoder_identity,
            "dimension": dimension,
            "similarity": STORED_AS[similarity],
            "stored": stored,
            "ann": stages.build_faiss(staging, learned, stored, similarity, execution),
        }
    with execution.timings.stage("files"):
        publish_rejected(place)
        return publish(staging, place.output, state)


def _write_papers(
    place: Place,
    source: Source,
    settings: BuildSettings,
    models: BuildModels,
    inputs: dict[str, Any],
    resolve_faiss: Resolve,
    execution: Execution,
) -> State:
    """The stage that reads the corpus."""
    staging = place.staging
    stages.clear(staging)
    with execution.timings.stage("papers"):
        with recorded(place) as left_out:
            papers = stages.read_papers(source, models, execution, left_out)
            counts = stages.write_corpus(staging, papers, lucene=settings.bm25)
        if models.encoder is not None:  # settings that do not fit are refused before the long work
            resolve_faiss(settings.faiss, counts.sentences, models.encoder.dimension)
        state = stages.begin_state(inputs, counts, models, left_out)
        if source.add_shards is not None:
            source.add_shards(staging, state["tagger"])
        save_state(staging, state)
    return state


def _encode_and_label(
    staging: Path, models: BuildModels, state: State, stored: str, execution: Execution
) -> None:
    """The stage that makes vectors and, out of the same pass, the facets that a tagger predicts."""
    if (staging / WHOLE).exists() and not (staging / shards.SHARDS).exists():
        return
    stages.encode(staging, models.tagging_encoder(state["tagger"]), execution, stored=stored)
