"""The stages that builds, parts and compactions are made of, each a function on the folder it works in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from qbe.corpus.leftout import LeftOut
from qbe.index.building import shards
from qbe.index.building.models import BuildModels
from qbe.index.building.settings import Execution
from qbe.index.building.source import Source
from qbe.index.building.unfinished import State
from qbe.index.dense.ann import AnnSettings
from qbe.index.dense.faiss_index import write_faiss_index
from qbe.index.dense.vectors import read_vectors
from qbe.index.lucene import INPUT, write_input, write_lucene_index
from qbe.index.papers import PaperCounts, PaperStore, write_papers
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


def begin_state(inputs: dict[str, Any], counts: PaperCounts, models: BuildModels, left_out: LeftOut) -> State:
    """The state of a build behind its first stage."""
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
    store = PaperStore(folder, predictions=False)
    with execution.progress.encoding(len(store)) as advance, execution.timings.stage("vectors"):
        shards.write_shards(folder, store, tagging, advance, place)
        if stored is not None:
            shards.join_shards(folder, len(store), tagging, stored)
    execution.timings.seconds["tagging"] += tagging.tagging_seconds


def build_lucene(
    folder: Path, papers: int, execution: Execution, positions: bool, docvectors: bool
) -> dict[str, Any]:
    """The stage of Lucene, over the input that `write_corpus` left; see `drop_lucene_input`."""
    execution.progress.stage("indexing with Lucene")
    with execution.timings.stage("lucene"):
        return write_lucene_index(folder, papers, execution.threads, positions, docvectors)


def drop_lucene_input(folder: Path) -> None:
    """Remove Lucene's input, once its index is there and recorded."""
    shutil.rmtree(folder / INPUT, ignore_errors=True)


def build_faiss(
    folder: Path, ann: AnnSettings, stored: str, similarity: str, execution: Execution
) -> dict[str, Any]:
    """The stage of FAISS, over vectors that are there: its parameters, as a manifest holds them."""
    execution.progress.stage("indexing with FAISS")
    with execution.timings.stage("faiss"):
        vectors, layout = read_vectors(folder, stored)[0], PaperStore(folder).layout()
        return write_faiss_index(folder, vectors, layout, similarity, ann, execution.threads)
