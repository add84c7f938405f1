"""One segment out of all: living papers copied in order, both sides built anew, nothing encoded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.building.progress import Progress, Silent
from qbe.index.building.publishing import publish
from qbe.index.building.settings import BuildSettings
from qbe.index.building.unfinished import State
from qbe.index.dense.ann import INT8, fitting, settled_stored
from qbe.index.dense.candidates import write_candidates
from qbe.index.dense.stored import npy_header, vector_file
from qbe.index.dense.vectors import SENTENCES, WHOLE, read_vectors
from qbe.index.live.writer import Written, commit, resolved, writing
from qbe.index.lucene import write_postings
from qbe.index.manifest import Manifest, similarity_of, stored_as
from qbe.index.papers import FACETS_FILE, PROBABILITIES_FILE, STARTS_FILE, PaperStore, write_papers
from qbe.index.rows import Rows, live_rows, sentence_rows
from qbe.index.segments.combined import combined_manifest, labeller
from qbe.index.segments.commit import Segment, segment_name
from qbe.index.segments.snapshot import OpenSegment
from qbe.index.segments.views import PaperStores
from qbe.types import FacetProbabilities

_BLOCK = 65_536
"""Rows copied at a time."""


def compact(folder: str | Path, *, threads: int = 1, progress: Progress | None = None) -> Written | None:
    """Make one segment of an index: what a build of its papers in their order would make, but for the
    time of encoding and tagging, and of the same digest.

    FAISS's index is of the kind that such a build would have. So is the form in which vectors are stored:
    those in half precision lose digits for good where the index has grown so large that they become bytes.
    Vectors in bytes stay so, even where a build would keep half precision for the papers that are left; then
    the digest is another.

    None where that is what it is already. Needs room for both. Whoever has the index open goes on with the
    old segments, which the next writer removes once they are closed. Raises what
    `qbe.index.live.writer.writing` does, and IndexBuildError and OutputError for what the sides need.
    """
    folder = resolved(folder)
    with writing(folder) as snapshot:
        if snapshot.plain:
            return None
        name = segment_name(snapshot.generation + 1)
        target = folder / name
        staging = target.parent / f".{target.name}.building"
        try:
            manifest = combined_manifest(snapshot)
            built = _merged(staging, target, snapshot.parts, manifest, threads, progress or Silent())
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        generation = commit(folder, snapshot, [Segment(name, built.digest)])
        return Written(0, 0, 0, built.corpus["papers"], 1, generation)


def _merged(
    staging: Path,
    target: Path,
    parts: Sequence[OpenSegment],
    manifest: Manifest,
    threads: int,
    progress: Progress,
) -> Manifest:
    staging.mkdir(parents=True)
    progress.stage("copying")
    counts = write_papers(staging, PaperStores(parts, predictions=False).read_from(0))
    predicted = counts.papers - counts.labelled if manifest.dense is not None else 0
    state: State = {
        "inputs": {"settings": manifest.settings},
        "counts": {**counts._asdict(), "predicted": predicted},
        "tagger": labeller(manifest) if predicted else None,
    }
    if manifest.dense is not None:
        asked = BuildSettings.read(manifest.settings, threads=threads)
        stored = _stored(parts, asked.stored, counts.sentences)
        _copy_vectors(staging, parts, predicted > 0, stored)
    if manifest.lucene is not None:
        progress.stage("indexing with Lucene")
        papers = PaperStore(staging, predictions=False).read_from(0)
        kept = [manifest.lucene[name] for name in ("positions", "docvectors")]
        state["lucene"] = write_postings(staging, papers, threads, *kept)
    if manifest.dense is not None:
        progress.stage("indexing with FAISS")
        vectors, layout = read_vectors(staging, stored)[0], PaperStore(staging).layout()
        ann = fitting(asked.ann, *vectors.shape)
        plan = write_candidates(staging, vectors, layout, similarity_of(manifest), ann, threads)
        state["dense"] = {**manifest.dense, "stored": stored, "ann": plan}
    return publish(staging, target, state)


def _stored(parts: Sequence[OpenSegment], asked: str, sentences: int) -> str:
    """How the vectors of one segment out of all are stored: half precision is not made of bytes again."""
    if INT8 in {stored_as(part.manifest) for part in parts}:
        return INT8
    return settled_stored(asked, sentences)


def _copy_vectors(staging: Path, parts: Sequence[OpenSegment], tagged: bool, stored: str) -> None:
    """The living papers' rows of all that encoding and tagging made."""
    papers = [live_rows(part.papers, part.dead) for part in parts]
    layouts = [np.load(part.path / STARTS_FILE) for part in parts]
    sentences = [sentence_rows(starts, rows) for starts, rows in zip(layouts, papers, strict=True)]
    opened = [read_vectors(part.path, stored_as(part.manifest)) for part in parts]
    similarity = similarity_of(parts[0].manifest)
    for name, rows, arrays in zip(
        (SENTENCES, WHOLE), (sentences, papers), zip(*opened, strict=True), strict=True
    ):
        shape = sum(map(len, rows)), arrays[0].shape[1]
        with vector_file(staging, name, shape, stored, similarity) as write:
            for block in _blocks(arrays, rows):
                write(block)
    _copy_rows(
        staging / FACETS_FILE, [np.load(part.path / FACETS_FILE, mmap_mode="r") for part in parts], sentences
    )
    if tagged:
        probabilities = [_probabilities(part) for part in parts]
        _copy_rows(staging / PROBABILITIES_FILE, probabilities, sentences)


def _probabilities(part: OpenSegment) -> NDArray[np.float16]:
    """Probabilities (sentences, 5) of a segment; zeros where its corpus brought all labels."""
    path = part.path / PROBABILITIES_FILE
    if not path.exists():
        return np.zeros((part.manifest.corpus["sentences"], len(FacetProbabilities._fields)), np.float16)
    found: NDArray[np.float16] = np.load(path, mmap_mode="r")
    return found


def _copy_rows(path: Path, arrays: Sequence[NDArray[Any]], rows: Sequence[Rows]) -> None:
    """Some rows of each array into one ``.npy`` file, by plain writes, which fail on a full disk."""
    with path.open("wb") as stream:
        stream.write(npy_header((sum(map(len, rows)), *arrays[0].shape[1:]), arrays[0].dtype))
        for block in _blocks(arrays, rows):
            stream.write(block.tobytes())


def _blocks(arrays: Sequence[Any], rows: Sequence[Rows]) -> Iterator[Any]:
    """Some rows of each array, some at a time."""
    for array, chosen in zip(arrays, rows, strict=True):
        for first in range(0, len(chosen), _BLOCK):
            yield array[chosen[first : first + _BLOCK]]
