"""The stages that builds, parts and compactions are made of, each a function on the folder it works in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qbe.corpus.leftout import LeftOut
from qbe.files import publish_directory
from qbe.index.building import shards
from qbe.index.building.models import BuildModels
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Origin, Source
from qbe.index.building.staging import STATE, State
from qbe.index.dense.ann import Learned
from qbe.index.dense.faiss_build import write_faiss_segment
from qbe.index.dense.vectors import read_vectors
from qbe.index.labels import describe_predictions
from qbe.index.lucene import INPUT, write_input, write_lucene_index
from qbe.index.manifest import FORMAT_VERSION, MANIFEST, Manifest, describe_files, digest, write_manifest
from qbe.index.papers import RECORDS, PaperCounts, SegmentPapers, write_papers
from qbe.tag.tagging import TaggingEncoder
from qbe.text.split import split_sentences
from qbe.types import Paper


def clear(folder: Path) -> None:
    """Make an empty folder; one that exists is removed first, with its content.

    >>> clear(Path("cleared"))
    >>> list(Path("cleared").iterdir())
    []
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def read_papers(
    source: Source, models: BuildModels, execution: Execution, left_out: LeftOut
) -> Iterator[Paper]:
    """The papers of a source as the index is to store them, split into sentences, with progress shown."""
    split = execution.timings.timed("splitting", split_sentences)
    return models.prepare(execution.progress.papers(source.papers(split, left_out), source.share_read))


def write_corpus(folder: Path, papers: Iterable[Paper], *, lucene: bool) -> PaperCounts:
    """The first stage: the papers' records and layout and, where there is to be a Lucene index, its input, in
    one pass over the papers. All later stages read these.

    >>> clear(Path("first"))
    >>> write_corpus(Path("first"), index, lucene=True)
    PaperCounts(papers=128, labelled=128, sentences=594)
    >>> sorted(path.name for path in Path("first").iterdir())
    ['facets.npy', 'lucene-input', 'papers.ids', 'papers.jsonl', 'papers.offsets.npy', 'sentences.npy']
    """
    return write_papers(folder, write_input(folder, papers) if lucene else papers)


def inputs(origin: Origin, settings: BuildSettings, models: BuildModels) -> dict[str, Any]:
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


def begin_state(inputs: dict[str, Any], counts: PaperCounts, models: BuildModels, left_out: LeftOut) -> State:
    """The state of a build after its first stage."""
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
    bar = execution.progress.steps("encoding", "papers", len(store))
    with bar as advance, execution.timings.stage("vectors"):
        shards.write_shards(folder, store, tagging, advance, place)
        if stored is not None:
            shards.join_shards(folder, len(store), tagging, stored)
    execution.timings.seconds["tagging"] += tagging.tagging_seconds


def build_lucene(
    folder: Path, papers: int, execution: Execution, positions: bool, docvectors: bool
) -> dict[str, Any]:
    """The stage of Lucene, over the input that `write_corpus` left; see `drop_lucene_input`."""
    bar = execution.progress.steps("indexing with Lucene", "papers", papers)
    with bar as advance, execution.timings.stage("lucene"):
        return write_lucene_index(folder, papers, execution.threads, positions, docvectors, advance)


def drop_lucene_input(folder: Path) -> None:
    """Remove Lucene's input, once its index is there and recorded."""
    shutil.rmtree(folder / INPUT, ignore_errors=True)


def build_faiss(
    folder: Path, learned: Learned, stored: str, similarity: str, execution: Execution
) -> dict[str, Any]:
    """The stage of FAISS, over vectors that are there: its parameters, as a manifest holds them."""
    vectors = read_vectors(folder, stored)[0]
    bar = execution.progress.steps("indexing with FAISS", "vectors", len(vectors))
    with bar as advance, execution.timings.stage("faiss"):
        params, threads = learned.params, execution.threads
        write_faiss_segment(folder, vectors, similarity, params, threads, advance, learned.file)
        return params.record()


def publish(staging: Path, output: Path, state: State) -> Manifest:
    """Describe the finished files of a folder in a manifest, and put it in its place."""
    files = describe_files(staging, leave_out=(STATE, MANIFEST))
    tagger = state["tagger"]
    if tagger is not None:
        tagger = {**tagger, **describe_predictions(SegmentPapers(staging).layout())}
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
    (output / STATE).unlink(missing_ok=True)
    return manifest
