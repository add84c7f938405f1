"""Encoding and labelling the papers of a build, shard by shard, in one pass through the encoder.

A shard holds the vectors of some papers and, where a tagger labels them, the facets that come out of the same
pass. Finished shards stay when a build is interrupted; all of them are joined into the files of the index.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError
from qbe.index.building.settings import BuildSettings
from qbe.index.dense.stored import SENTENCES, WHOLE, Half, npy_header, vector_file, write_array
from qbe.index.papers import (
    FACETS_FILE,
    PROBABILITIES_FILE,
    STARTS_FILE,
    SegmentPapers,
    facet_codes,
    without_labels,
)
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.types import FacetProbabilities, Paper
from qbe.util.files import atomic_file

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
    ``advance`` is called with the number of papers just finished, first for the shards that are there. The
    store gives papers as the corpus brought them.
    """
    (folder / SHARDS).mkdir(exist_ok=True)
    missing: list[tuple[int, int]] = []
    for first in range(0, len(store), SHARD_PAPERS):
        count = min(SHARD_PAPERS, len(store) - first)
        if shard_file(folder, place(first)).exists():
            advance(count)
        else:
            missing.append((first, count))
    # One stream: what encodes may read ahead beyond the end of a shard.
    encoded = encoder.encode(
        paper for first, count in missing for paper in islice(store.read_from(first), count)
    )
    for first, count in missing:
        path = shard_file(folder, place(first))
        papers: list[tuple[NDArray[Any], ...]] = []  # of each paper, in the order of the files in join_shards
        for paper, vectors in islice(encoded, count):
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
                writers.append(partial(write_array, stream))
        for first in range(0, papers, SHARD_PAPERS):
            with shard_file(folder, first).open("rb") as shard:
                for write in writers:
                    write(np.load(shard))
    shutil.rmtree(folder / SHARDS)


def shard_file(folder: Path, first: int) -> Path:
    """The file of the shard whose first paper has a row in the corpus.

    >>> shard_file(Path("part"), 512).name
    '0000000512.npy'
    """
    return folder / SHARDS / f"{first:010d}.npy"


Identity = dict[str, str]


class BuildModels:
    """The encoder of a build, None without vectors, and which of its papers are tagged, by which tagger."""

    def __init__(
        self, settings: BuildSettings, threads: int, expected_tagger: Identity | None = None
    ) -> None:
        """Load the encoder. ``expected_tagger`` is the identity that the tagger must have, if one is needed.

        Raises what `qbe.models.encoder.Encoder` does.
        """
        self._settings, self._expected_tagger = settings, expected_tagger
        self.encoder: Encoder | None = None
        if settings.dense:
            files = resolve_encoder(settings.encoder, settings.precision)
            self.encoder = Encoder(files, threads, settings.device)

    @property
    def similarity(self) -> str:
        """How the encoder's vectors are compared, one of `qbe.models.formats.SIMILARITIES`."""
        assert self.encoder is not None
        return self.encoder.files.metadata.encoder_format.similarity

    @property
    def encoder_identity(self) -> dict[str, Any] | None:
        """What tells the encoder from another; None without vectors."""
        return None if self.encoder is None else self.encoder.files.identity

    @cached_property
    def _tagger(self) -> Tagger:
        tagger = Tagger.open(self._settings.tagger)
        expected = self._expected_tagger
        if expected is not None and expected != tagger.identity:
            raise IndexBuildError(
                f"expected the tagger {expected['name']} ({expected['sha256'][:12]}) that labelled "
                f"the index's papers, found {tagger.metadata.name} ({tagger.identity['sha256'][:12]}); give "
                "that one as `tagger`, or build the index again"
            )
        return tagger

    def prepare(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Papers as the index is to store them: without given labels where all are predicted.

        At the first paper to be tagged the tagger is opened: raises ModelError when there is none,
        IndexBuildError when it is not the expected one, before the long work begins.
        """
        drops_labels = self._settings.dense and self._settings.facets == "predicted"
        for paper in papers:
            kept = without_labels(paper) if drops_labels else paper
            if self._settings.dense and not kept.labelled:
                _ = self._tagger  # opened once
            yield kept

    def tagger_identity(self, predicted: int) -> Identity | None:
        """What tells the tagger from another; None where no papers are predicted."""
        return self._tagger.identity if predicted else None

    def tagging_encoder(self, tagger: Identity | None) -> TaggingEncoder:
        """The encoder, with the tagger of that identity, or with none.

        Raises IndexBuildError where the tagger was exchanged since an unfinished build began.
        """
        assert self.encoder is not None
        if tagger is None:
            return TaggingEncoder(self.encoder, None)
        current = self._tagger.identity
        if current != tagger:
            raise IndexBuildError(
                f"expected the tagger {tagger['name']} ({tagger['sha256'][:12]}) as when the build "
                f"began, found {current['name']} ({current['sha256'][:12]}); put that one back, or "
                "discard the build with `overwrite` alone"
            )
        return TaggingEncoder(self.encoder, self._tagger)
