"""One segment out of all: living papers copied in order, both sides built anew, nothing encoded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.build import publish
from qbe.index.combined import combined_manifest, labeller
from qbe.index.commit import Segment, segment_name
from qbe.index.manifest import Manifest, similarity_of
from qbe.index.neighbours import write_neighbours
from qbe.index.papers import FACETS_FILE, PROBABILITIES_FILE, STARTS_FILE, PaperStore, write_papers
from qbe.index.postings import write_postings
from qbe.index.progress import Progress, Silent
from qbe.index.rows import Rows, live_rows, sentence_rows
from qbe.index.snapshot import Part
from qbe.index.unfinished import State
from qbe.index.vectors import SENTENCES, WHOLE, npy_header, read_vectors
from qbe.index.views import PaperStores
from qbe.index.writer import Written, commit, resolved, writing
from qbe.types import FacetProbabilities

_BLOCK = 65_536
"""Rows copied at a time."""


def compact(folder: str | Path, *, threads: int = 1, progress: Progress | None = None) -> Written | None:
    """Make one segment of an index: what a build of its papers in their order would make, but for the
    time of encoding and tagging, and of the same digest.

    None where that is what it is already. Needs room for both. Whoever has the index open goes on with the
    old segments, which the next writer removes once they are closed. Raises what
    `qbe.index.writer.writing` does, and IndexBuildError and OutputError for what the sides need.
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
    staging: Path, target: Path, parts: Sequence[Part], manifest: Manifest, threads: int, progress: Progress
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
        _copy_vectors(staging, parts, predicted > 0)
    if manifest.lucene is not None:
        progress.stage("indexing with Lucene")
        papers = PaperStore(staging, predictions=False).read_from(0)
        kept = [manifest.lucene[name] for name in ("positions", "docvectors")]
        state["lucene"] = write_postings(staging, papers, threads, *kept)
    if manifest.dense is not None:
        progress.stage("indexing with FAISS")
        write_neighbours(staging, read_vectors(staging)[0], similarity_of(manifest))
        state["dense"] = manifest.dense
    return publish(staging, target, state)


def _copy_vectors(staging: Path, parts: Sequence[Part], tagged: bool) -> None:
    """The living papers' rows of all that encoding and tagging made."""
    papers = [live_rows(part.papers, part.dead) for part in parts]
    layouts = [np.load(part.path / STARTS_FILE) for part in parts]
    sentences = [sentence_rows(starts, rows) for starts, rows in zip(layouts, papers, strict=True)]
    _copy_rows(staging / WHOLE, [np.load(part.path / WHOLE, mmap_mode="r") for part in parts], papers)
    for name in (SENTENCES, FACETS_FILE):
        _copy_rows(staging / name, [np.load(part.path / name, mmap_mode="r") for part in parts], sentences)
    if tagged:
        probabilities = [_probabilities(part) for part in parts]
        _copy_rows(staging / PROBABILITIES_FILE, probabilities, sentences)


def _probabilities(part: Part) -> NDArray[np.float16]:
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
        for array, chosen in zip(arrays, rows, strict=True):
            for first in range(0, len(chosen), _BLOCK):
                stream.write(array[chosen[first : first + _BLOCK]].tobytes())
