"""One segment out of all: living papers copied in order, Lucene and FAISS built anew, nothing encoded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.staging import Place
from qbe.index.dense.ann import INT8, checked_or_flat, resolve_stored
from qbe.index.live.copying import CopiedDense, copy_papers
from qbe.index.live.writer import Written, commit, resolved, writing
from qbe.index.manifest import Manifest, stored_as
from qbe.index.rows import live_rows
from qbe.index.segments.combined import combined_manifest
from qbe.index.segments.commit import Segment, segment_name
from qbe.index.segments.snapshot import OpenSegment


def compact(folder: str | Path, *, execution: Execution | None = None) -> Written | None:
    """Make one segment of an index, of the same digest as a build of its papers in their order, without the
    time of encoding and tagging.

    FAISS's index is of the kind that such a build would have, and so is the form in which vectors are stored:
    those in half precision are quantized to bytes, which cannot be undone, where the index has grown large.
    Vectors in bytes stay so, even where a build would keep half precision for the papers that are left; then
    the digest is another.

    Returns None where the index is one segment without deleted papers already. Needs disk space for both. An
    open index keeps reading the old segments, which the next writer removes once they are closed. Raises what
    `qbe.index.live.writer.writing` does, and IndexBuildError and OutputError for what the stages need.

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


def _dense(segments: Sequence[OpenSegment], manifest: Manifest) -> CopiedDense | None:
    """How vectors are stored and found in one segment out of all; None where there are none."""
    if manifest.dense is None:
        return None
    settings, sentences = BuildSettings.read(manifest.settings), manifest.corpus["sentences"]
    ann = checked_or_flat(settings.ann, sentences, manifest.dense["dimension"])
    return CopiedDense(_stored(segments, settings.stored, sentences), ann)


def _stored(segments: Sequence[OpenSegment], requested: str, sentences: int) -> str:
    """How the vectors of one segment out of all are stored: half precision is not made of bytes again."""
    if INT8 in {stored_as(segment.manifest) for segment in segments}:
        return INT8
    return resolve_stored(requested, sentences)
