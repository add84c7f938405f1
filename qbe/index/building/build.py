"""Building an index: stage by stage in a hidden folder, resumable, put in place in one step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.corpus.sentences import split_sentences
from qbe.errors import check_package
from qbe.index import jvm as _jvm
from qbe.index.building import shards
from qbe.index.building.rejected import check_replaceable, publish_rejected, recorded
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.shards import BuildModels, Identity
from qbe.index.building.source import Corpus, Origin, Source, open_corpus
from qbe.index.building.staging import (
    STATE,
    Place,
    State,
    build_place,
    check_target,
    read_state,
    save_state,
    segment_place,
)
from qbe.index.dense.ann import FaissParams, SharedDense, resolve, resolve_or_exact, resolve_stored
from qbe.index.dense.faiss_build import check_factory, write_faiss_segment
from qbe.index.dense.stored import WHOLE, read_vectors
from qbe.index.lucene import INPUT, write_input, write_lucene_index
from qbe.index.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    STORED_AS,
    Manifest,
    describe_files,
    digest,
    write_manifest,
)
from qbe.index.papers import RECORDS, SegmentPapers, write_papers
from qbe.index.snapshot import Commit
from qbe.models.tagger import TaggingEncoder
from qbe.types import Paper
from qbe.util.files import publish_directory

Resolve = Callable[[str, int, int], FaissParams]
"""Makes parameters of a factory string, the number of sentences and the dimension, or raises UsageError."""


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
    source = open_corpus(corpus, reading)
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
    index: Path,
    tagger: Identity | None = None,
    shared: SharedDense | None = None,
) -> Manifest | None:
    """Build an index at ``folder``, where nothing is, as a segment of another one; nothing is resumed.

    Returns None, and leaves no segment, where the source has no paper. Where a segment has too few sentences
    for the settings' FAISS index, its own is exact. ``index`` is the folder of the whole, ``tagger`` the
    identity of the tagger that labelled the other segments, if any. Records that are left out are listed
    beside the segment, for `qbe.index.building.rejected.add_rejected`, and where the corpus cannot be used,
    beside the whole. ``shared`` is what all segments have in common, which overrides the settings for
    vectors. Raises what `build` and ``source`` do; then nothing is left behind.
    """
    with segment_place(folder, index) as place:
        return _run(place, source, settings, execution, resolve_or_exact, tagger, shared)


def _is_built(existing: Commit | Manifest, output: Path, settings: BuildSettings, source: Source) -> bool:
    """Whether what is there is what this build makes, and was never updated."""
    return (
        isinstance(existing, Manifest)
        and is_same(existing.settings, existing.corpus, settings, source.origin)
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
    inputs = build_inputs(source.origin, settings, models)
    state = read_state(staging, inputs)
    if state is None:
        if models.encoder is not None:
            check_package("faiss")
            check_factory(settings.faiss, models.encoder.dimension, models.similarity)
        if settings.bm25:
            _jvm.java_class("java.lang.Object")  # a missing Java is reported before the work
        state = read_papers(place, source, models, inputs, execution, lucene=settings.bm25)
        if models.encoder is not None:  # settings that do not fit are refused before the long work
            resolve_faiss(settings.faiss, state["counts"]["sentences"], models.encoder.dimension)
        if source.add_shards is not None:
            source.add_shards(staging, state["tagger"])
        save_state(staging, state)
    if not state["counts"]["papers"]:
        publish_rejected(place)
        return None
    if settings.bm25:
        if "lucene" not in state:
            papers = state["counts"]["papers"]
            state["lucene"] = build_lucene(
                staging, papers, execution, settings.positions, settings.docvectors
            )
            save_state(staging, state)
        shutil.rmtree(staging / INPUT, ignore_errors=True)
    if models.encoder is not None:
        sentences, dimension = state["counts"]["sentences"], models.encoder.dimension
        dense = shared or SharedDense(
            resolve_stored(settings.stored, sentences), resolve_faiss(settings.faiss, sentences, dimension)
        )
        if (staging / shards.SHARDS).exists() or not (staging / WHOLE).exists():
            encode(staging, models.tagging_encoder(state["tagger"]), execution, stored=dense.stored)
        state["dense"] = {
            "encoder": models.encoder_identity,
            "dimension": dimension,
            "similarity": STORED_AS[models.similarity],
            "stored": dense.stored,
            "ann": build_faiss(staging, dense, models.similarity, execution),
        }
    publish_rejected(place)
    return publish(staging, place.output, state)


def clear(folder: Path) -> None:
    """Make an empty folder; one that exists is removed first, with its content.

    >>> clear(Path("cleared"))
    >>> list(Path("cleared").iterdir())
    []
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def build_inputs(origin: Origin, settings: BuildSettings, models: BuildModels) -> dict[str, Any]:
    """What determines a build, which a call that resumes it must give again."""
    return {
        "settings": settings.record(origin.names),
        "sources": origin.facts,
        "encoder": models.encoder_identity,
        **({"reading": origin.reading} if origin.reading else {}),
    }


def is_same(
    recorded: Mapping[str, Any], counts: Mapping[str, Any], settings: BuildSettings, origin: Origin
) -> bool:
    """Whether something finished, of which ``recorded`` are the settings and ``counts`` the papers' counts,
    was made with these settings, of sources of these names, read in this way.
    """
    return recorded == settings.record(origin.names) and counts.get("reading", {}) == origin.reading


def read_papers(
    place: Place,
    source: Source,
    models: BuildModels,
    inputs: dict[str, Any],
    execution: Execution,
    *,
    lucene: bool,
    select: Callable[[Iterable[Paper]], Iterable[Paper]] = iter,
) -> State:
    """The stage that reads the corpus, split into sentences, into an empty folder: those of its papers that
    ``select`` passes through, and where there is to be a Lucene index, its input. Returns the state of a
    build after it.
    """
    clear(place.staging)
    with recorded(place) as left_out:
        read = execution.progress.papers(source.papers(split_sentences, left_out), source.share_read)
        papers = select(models.prepare(read))
        counts = write_papers(place.staging, write_input(place.staging, papers) if lucene else papers)
    predicted = 0 if models.encoder is None else counts.papers - counts.labelled
    skipped = {"left_out": left_out.counts()} if left_out else {}
    reading = {"reading": inputs["reading"]} if "reading" in inputs else {}
    return {
        "inputs": inputs,
        "counts": {**counts._asdict(), "predicted": predicted, **reading, **skipped},
        "tagger": models.tagger_identity(predicted),
    }


def encode(
    folder: Path,
    tagging: TaggingEncoder,
    execution: Execution,
    *,
    place: Callable[[int], int] = lambda first: first,
    stored: str | None = None,
) -> None:
    """The stage of vectors and, out of the same pass, of the facets that a tagger predicts.

    Shards that are there already are kept. With ``stored`` all shards are joined as
    `qbe.index.building.shards.join_shards` does, otherwise they stay; ``place`` is that of
    `qbe.index.building.shards.write_shards`.
    """
    store = SegmentPapers(folder, predictions=False)
    with execution.progress.steps("encoding", "papers", len(store)) as advance:
        shards.write_shards(folder, store, tagging, advance, place)
        if stored is not None:
            shards.join_shards(folder, len(store), tagging, stored)


def build_lucene(
    folder: Path, papers: int, execution: Execution, positions: bool, docvectors: bool
) -> dict[str, Any]:
    """The stage of Lucene, over the input that `write_input` left, which stays."""
    execution.progress.stage("indexing with Lucene")
    return write_lucene_index(folder, papers, execution.threads, positions, docvectors)


def build_faiss(folder: Path, dense: SharedDense, similarity: str, execution: Execution) -> dict[str, Any]:
    """The stage of FAISS, over vectors that are there: its parameters, as a manifest holds them."""
    vectors, threads = read_vectors(folder, dense.stored)[0], execution.threads
    with execution.progress.steps("indexing with FAISS", "vectors", len(vectors)) as advance:
        write_faiss_segment(folder, vectors, similarity, dense.params, threads, advance, dense.learned)
    return dense.params.record()


def publish(staging: Path, output: Path, state: State) -> Manifest:
    """Describe the finished files of a folder in a manifest, and put it in its place."""
    files = describe_files(staging, leave_out=(STATE, MANIFEST))
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
    write_manifest(staging, manifest)
    publish_directory(staging, output)
    (output / STATE).unlink(missing_ok=True)
    return manifest
