"""Encoding and labelling the papers of a build, shard by shard, in one pass through the encoder.

A shard holds the vectors of some papers and, where a tagger labels them, the facets that come out of the same
pass. Finished shards stay when a build is interrupted; all of them are joined into the files of the index.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from qbe.files import atomic_file
from qbe.index.dense.stored import Half, npy_header, vector_file
from qbe.index.dense.vectors import SENTENCES, WHOLE
from qbe.index.papers import FACETS_FILE, PROBABILITIES_FILE, STARTS_FILE, SegmentPapers, facet_codes
from qbe.tag.tagging import TaggingEncoder
from qbe.types import FacetProbabilities, Paper

SHARDS = "shards"
SHARD_PAPERS = 512
"""Papers a shard: the work that a killed build may lose."""

_LABELS = len(FacetProbabilities._fields)


def write_shards(
    folder: Path,
    store: SegmentPapers,
    encoder: TaggingEncoder,
    advance: Callable[[int], Any],
    place: Callable[[int], int],
) -> None:
    """Encode and label all papers of a store, SHARD_PAPERS at a time, into the shards that are not there yet.

    A shard is named by the row of its first paper in the corpus: ``place`` of that row in the store.
    ``advance`` is called with the number of papers just finished. The store gives papers as the corpus
    brought them.
    """
    (folder / SHARDS).mkdir(exist_ok=True)
    for first in range(0, len(store), SHARD_PAPERS):
        path = shard_file(folder, place(first))
        count = min(SHARD_PAPERS, len(store) - first)
        if path.exists():
            advance(count)
            continue
        papers: list[tuple[NDArray[Any], ...]] = []  # of each paper, in the order of the files in join_shards
        for paper, vectors in encoder.encode(islice(store.read_from(first), count)):
            arrays = vectors.sentences.astype(np.float16), vectors.whole.astype(np.float16)[None]
            papers.append((*arrays, np.frombuffer(facet_codes(paper), np.uint8), _probabilities(paper)))
            advance(1)
        with atomic_file(path) as stream:
            for array in map(np.concatenate, zip(*papers, strict=True)):
                stream.write(npy_header(array.shape, array.dtype) + array.tobytes())


def _probabilities(paper: Paper) -> Half:
    """The probabilities (sentences, 5) of a paper's labels; zeros where they were not predicted."""
    unknown = (0.0,) * _LABELS
    return np.array([sentence.probabilities or unknown for sentence in paper.sentences], dtype=np.float16)


def join_shards(folder: Path, papers: int, encoder: TaggingEncoder, stored: str) -> None:
    """Join shards into ``vectors.npy`` (sentences, dimension) and ``whole.npy`` (papers, dimension),
    ``stored`` as one of `qbe.index.dense.ann.STORED`; with a tagger also into ``facets.npy`` and the
    probabilities of these. The shards are removed at the end.

    Files are written by plain writes: on a full disk they fail, where a memory map would kill the process.
    They are written from the start for as long as the folder of shards is there, however often that was
    interrupted.
    """
    sentences = int(np.load(folder / STARTS_FILE)[-1])
    dimension, similarity = (
        encoder.encoder.dimension,
        encoder.encoder.files.metadata.encoder_format.similarity,
    )
    with contextlib.ExitStack() as stack:
        writers: list[Callable[[NDArray[Any]], Any]] = []
        for name, total in ((SENTENCES, sentences), (WHOLE, papers)):
            file = vector_file(folder, name, (total, dimension), stored, similarity)
            writers.append(stack.enter_context(file))
        if encoder.tagger is not None:
            for name, shape, kind in (
                (FACETS_FILE, (sentences,), np.uint8),
                (PROBABILITIES_FILE, (sentences, _LABELS), np.float16),
            ):
                stream = stack.enter_context((folder / name).open("wb"))
                stream.write(npy_header(shape, np.dtype(kind)))
                writers.append(_plainly(stream))
        for first in range(0, papers, SHARD_PAPERS):
            with shard_file(folder, first).open("rb") as shard:
                for write in writers:
                    write(np.load(shard))
    shutil.rmtree(folder / SHARDS)


def _plainly(stream: IO[bytes]) -> Callable[[NDArray[Any]], Any]:
    return lambda part: stream.write(part.tobytes())


def shard_file(folder: Path, first: int) -> Path:
    """The file of the shard whose first paper has a row in the corpus.

    >>> shard_file(Path("part"), 512).name
    '0000000512.npy'
    """
    return folder / SHARDS / f"{first:010d}.npy"
