"""One segment out of all: living papers copied in order, Lucene and FAISS rebuilt, nothing encoded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.building.build import (
    build_faiss,
    build_lucene,
    clear,
    publish,
    write_corpus,
)
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.staging import Place, State
from qbe.index.building.writer import Written, commit, resolved, writing
from qbe.index.dense.ann import INT8, SharedDense, resolve_or_exact, resolve_stored
from qbe.index.dense.stored import SENTENCES, WHOLE, npy_header, read_vectors, vector_file
from qbe.index.lucene import INPUT
from qbe.index.manifest import Manifest, similarity_of, stored_as
from qbe.index.papers import FACETS_FILE, PROBABILITIES_FILE, STARTS_FILE, SegmentPapers
from qbe.index.rows import Rows, live_rows, sentence_rows
from qbe.index.snapshot import OpenSegment, Segment, Snapshot, segment_name
from qbe.index.views import combined_manifest, tagger_identity
from qbe.types import FacetProbabilities, Paper


def compact(folder: str | Path, *, execution: Execution | None = None) -> Written | None:
    """Make one segment of an index, of the same digest as a build of its papers in their order, without the
    time of encoding and tagging.

    FAISS's index is of the kind that such a build would have, and so is the form in which vectors are stored:
    those in half precision are quantized to bytes, which cannot be undone, where the index has grown large.
    Vectors in bytes stay so, even where a build would keep half precision for the papers that are left; then
    the digest is another.

    Returns None where the index is one segment without deleted papers already. Needs disk space for both. An
    open index keeps reading the old segments, which the next writer removes once they are closed. Raises what
    `qbe.index.building.writer.writing` does, and IndexBuildError and OutputError for what the stages need.

    >>> compact("indexes/sample") is None
    True
    """
    folder, execution = resolved(folder), execution or Execution()
    with writing(folder) as snapshot:
        if snapshot.plain:
            return None
        name = segment_name(snapshot.generation + 1)
        target = folder / name
        staging = target.parent / f".{target.name}.building"
        try:
            manifest = combined_manifest(snapshot)
            dense = _dense(snapshot.segments, manifest)
            live = [live_rows(segment.papers, segment.dead) for segment in snapshot.segments]
            compacted = copy_papers(Place(target, staging, folder), snapshot, live, dense, execution)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        generation = commit(folder, snapshot, [Segment(name, compacted.digest)])
        return Written(0, 0, 0, compacted.corpus["papers"], 1, generation)


def _dense(segments: Sequence[OpenSegment], manifest: Manifest) -> SharedDense | None:
    """How vectors are stored and found in one segment out of all; None where there are none."""
    if manifest.dense is None:
        return None
    settings, sentences = BuildSettings.read(manifest.settings), manifest.corpus["sentences"]
    params = resolve_or_exact(settings.faiss, sentences, manifest.dense["dimension"])
    return SharedDense(_stored(segments, settings.stored, sentences), params)


def _stored(segments: Sequence[OpenSegment], requested: str, sentences: int) -> str:
    """How the vectors of one segment out of all are stored: half precision is not made of bytes again."""
    if INT8 in {stored_as(segment.manifest) for segment in segments}:
        return INT8
    return resolve_stored(requested, sentences)


_BLOCK = 65_536
"""Rows copied at a time."""


def copy_papers(
    place: Place,
    snapshot: Snapshot,
    papers: Sequence[Rows],
    dense: SharedDense | None,
    execution: Execution,
) -> Manifest:
    """Copy some papers into a segment: of each segment of a snapshot those at the rows (n,), ascending.

    Lucene and FAISS are rebuilt. ``dense`` is None where there are no vectors. Raises IndexFormatError
    where a file is damaged, OutputError, and what the stages need.
    """
    manifest, segments, staging = combined_manifest(snapshot), snapshot.segments, place.staging
    for segment in segments:  # damage that was copied would have valid digests
        segment.files.verify()
    clear(staging)
    execution.progress.stage("copying")
    counts = write_corpus(staging, _papers(segments, papers), lucene=manifest.lucene is not None)
    predicted = counts.papers - counts.labelled if dense is not None else 0
    state: State = {
        "inputs": {"settings": manifest.settings},
        "counts": {**counts._asdict(), "predicted": predicted},
        "tagger": tagger_identity(manifest) if predicted else None,
    }
    if dense is not None:
        _copy_vectors(staging, segments, papers, predicted > 0, dense.stored)
    if manifest.lucene is not None:
        kept = [manifest.lucene[name] for name in ("positions", "docvectors")]
        state["lucene"] = build_lucene(staging, counts.papers, execution, *kept)
        shutil.rmtree(staging / INPUT)
    if dense is not None:
        assert manifest.dense is not None
        params = build_faiss(staging, dense, similarity_of(manifest), execution)
        state["dense"] = {**manifest.dense, "stored": dense.stored, "ann": params}
    return publish(staging, place.output, state)


def _papers(segments: Sequence[OpenSegment], papers: Sequence[Rows]) -> Iterator[Paper]:
    """The papers at some rows of each segment, as the corpus brought them."""
    for segment, rows in zip(segments, papers, strict=True):
        chosen = np.zeros(segment.papers, np.bool_)
        chosen[rows] = True
        for paper, is_chosen in zip(
            SegmentPapers(segment.files, predictions=False).read_from(0), chosen.tolist(), strict=True
        ):
            if is_chosen:
                yield paper


def _copy_vectors(
    staging: Path, segments: Sequence[OpenSegment], papers: Sequence[Rows], tagged: bool, stored: str
) -> None:
    """Copy the papers' rows of all that encoding and tagging wrote."""
    layouts = [segment.files.array(STARTS_FILE, "int64", 1) for segment in segments]
    sentences = [sentence_rows(starts, rows) for starts, rows in zip(layouts, papers, strict=True)]
    opened = [read_vectors(segment.files, stored_as(segment.manifest)) for segment in segments]
    similarity = similarity_of(segments[0].manifest)
    for name, rows, arrays in zip(
        (SENTENCES, WHOLE), (sentences, papers), zip(*opened, strict=True), strict=True
    ):
        shape = sum(map(len, rows)), arrays[0].shape[1]
        with vector_file(staging, name, shape, stored, similarity) as write:
            for block in _blocks(arrays, rows):
                write(block)
    facets = [segment.files.array(FACETS_FILE, "uint8", 1) for segment in segments]
    _copy_rows(staging / FACETS_FILE, facets, sentences)
    if tagged:
        probabilities = [_probabilities(segment) for segment in segments]
        _copy_rows(staging / PROBABILITIES_FILE, probabilities, sentences)


def _probabilities(segment: OpenSegment) -> NDArray[np.float16]:
    """Probabilities (sentences, 5) of a segment; zeros where its corpus brought all labels."""
    if not segment.files.has(PROBABILITIES_FILE):
        return np.zeros((segment.manifest.corpus["sentences"], len(FacetProbabilities._fields)), np.float16)
    return segment.files.array(PROBABILITIES_FILE, "float16", 2)


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
