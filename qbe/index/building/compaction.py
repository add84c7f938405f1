"""One segment out of all: living papers copied in order, Lucene and FAISS rebuilt, nothing encoded."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from qbe.errors import IndexBuildError
from qbe.index.building.build import build_faiss, build_lucene, clear, publish
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.staging import State, segment_place
from qbe.index.building.writer import Written, commit, writing
from qbe.index.dense.ann import INT8, SharedDense, resolve_or_exact, resolve_stored
from qbe.index.dense.stored import SENTENCES, WHOLE, read_vectors, vector_file
from qbe.index.lucene import INPUT, write_input
from qbe.index.manifest import Manifest
from qbe.index.papers import FACETS_FILE, PROBABILITIES_FILE, write_papers
from qbe.index.rows import Rows, sentence_rows, shares, starts_of
from qbe.index.snapshot import OpenSegment, Segment, Snapshot, segment_name
from qbe.index.views import PaperStore, combined_manifest, tagger_identity
from qbe.types import TEXT_NOT_INCLUDED, Paper


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
    execution = execution or Execution()
    with writing(folder) as snapshot:
        if snapshot.plain:
            return None
        name = segment_name(snapshot.generation + 1)
        dense = _dense(snapshot.segments, combined_manifest(snapshot))
        live = PaperStore(snapshot.segments).live
        compacted = copy_papers(snapshot.folder / name, snapshot, live, dense, execution)
        generation = commit(snapshot, [Segment(name, compacted.digest)])
        return Written(0, 0, 0, compacted.corpus["papers"], 1, generation)


def _dense(segments: Sequence[OpenSegment], manifest: Manifest) -> SharedDense | None:
    """How vectors are stored and found in one segment out of all; None where there are none.

    Half precision is not made of bytes again.
    """
    if manifest.dense is None:
        return None
    settings, sentences = BuildSettings.read(manifest.settings), manifest.corpus["sentences"]
    any_bytes = INT8 in {segment.manifest.stored for segment in segments}
    stored = INT8 if any_bytes else resolve_stored(settings.stored, sentences)
    return SharedDense(stored, resolve_or_exact(settings.faiss, sentences, manifest.dense["dimension"]))


_BLOCK = 65_536
"""Rows copied at a time."""


def copy_papers(
    folder: Path, snapshot: Snapshot, papers: Rows, dense: SharedDense | None, execution: Execution
) -> Manifest:
    """Copy the papers of some rows (n,), ascending, of a snapshot into a segment at ``folder``.

    Lucene and FAISS are rebuilt. ``dense`` is None where there are no vectors. Raises IndexFormatError
    where a file is damaged, OutputError, and what the stages need; then nothing is left behind.
    """
    manifest, segments = combined_manifest(snapshot), snapshot.segments
    for segment in segments:  # damage that was copied would have valid digests
        segment.files.verify()
    with segment_place(folder, snapshot.folder) as place:
        staging = place.staging
        clear(staging)
        execution.progress.stage("copying")
        store, chosen = PaperStore(segments, predictions=False), set(papers.tolist())
        living = zip(store.live.tolist(), store.read_from(0), strict=True)
        copied: Iterable[Paper] = (_with_text(paper) for row, paper in living if row in chosen)
        counts = write_papers(staging, copied if manifest.lucene is None else write_input(staging, copied))
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
            params = build_faiss(staging, dense, manifest.similarity, execution)
            state["dense"] = {**manifest.dense, "stored": dense.stored, "ann": params}
        return publish(staging, place.output, state)


def _with_text(paper: Paper) -> Paper:
    """The paper; raises IndexBuildError for one whose abstract is not included, of which no postings can be
    made.
    """
    if any(sentence.text == TEXT_NOT_INCLUDED for sentence in paper.sentences):
        raise IndexBuildError(
            f"expected papers with the texts of their abstracts, found {paper.paper_id} without; build the "
            "index of a corpus instead"
        )
    return paper


def _copy_vectors(
    staging: Path, segments: Sequence[OpenSegment], papers: Rows, tagged: bool, stored: str
) -> None:
    """Copy the papers' rows of all that encoding and tagging wrote."""
    layout = PaperStore(segments).layout()
    sentences = sentence_rows(layout.starts, papers)
    opened = [read_vectors(segment.files, segment.manifest.stored) for segment in segments]
    similarity = segments[0].manifest.similarity
    for name, rows, arrays in zip(
        (SENTENCES, WHOLE), (sentences, papers), zip(*opened, strict=True), strict=True
    ):
        with vector_file(staging, name, (len(rows), arrays[0].shape[1]), stored, similarity) as write:
            for share in shares(rows, starts_of([len(array) for array in arrays])):
                for first in range(0, len(share.rows), _BLOCK):
                    write(arrays[share.part][share.rows[first : first + _BLOCK]])
    np.save(staging / FACETS_FILE, layout.facets[sentences])
    if tagged:
        assert layout.probabilities is not None
        np.save(staging / PROBABILITIES_FILE, layout.probabilities[sentences])
