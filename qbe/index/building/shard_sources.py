"""Shards of an index that exists: nothing is encoded."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.building import shards, stages
from qbe.index.building.build import build_segment
from qbe.index.building.compaction import copy_papers
from qbe.index.building.merge import Parts
from qbe.index.building.part import BuildShard
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.sharding import WholeDense
from qbe.index.building.source import Origin
from qbe.index.building.staging import Place
from qbe.index.dense.ann import INT8, FaissParams, SharedDense, resolve, resolve_stored
from qbe.index.dense.faiss_build import check_factory
from qbe.index.dense.stored import quantized
from qbe.index.dense.vectors import read_vectors
from qbe.index.manifest import MANIFEST, Manifest, similarity_of, stored_as
from qbe.index.papers import RECORDS
from qbe.index.rows import Rows, shares, starts_of
from qbe.index.segments.combined import combined_manifest
from qbe.index.segments.snapshot import Snapshot, open_snapshot
from qbe.models.encoder_files import resolve_encoder


@dataclass(frozen=True, slots=True)
class IndexShards:
    """The papers of the index in ``folder``, which has one segment and no deleted papers (a
    `qbe.index.building.sharding.ShardSource`).

    >>> IndexShards(index.folder).dense().params.factory
    'SQfp16'
    """

    folder: Path

    @property
    def origin(self) -> Origin:
        """The digest of the index, and when it was built."""
        with contextlib.closing(self._snapshot()) as snapshot:
            manifest = combined_manifest(snapshot)
        changed = (self.folder / MANIFEST).stat().st_mtime_ns
        return Origin(tuple(manifest.settings["corpus"]), [[manifest.digest]], changed)

    def is_of(self, manifests: Sequence[Manifest]) -> bool:
        """By the settings, and the numbers of papers, of sentences, and of bytes of the papers."""
        with contextlib.closing(self._snapshot()) as snapshot:
            manifest = combined_manifest(snapshot)
        return all(each.settings == manifest.settings for each in manifests) and _sizes(manifest) == tuple(
            map(sum, zip(*map(_sizes, manifests), strict=True))
        )

    def dense(self) -> WholeDense | None:
        """The vectors of the index, stored and found as they are there."""
        with contextlib.closing(self._snapshot()) as snapshot:
            manifest, files = combined_manifest(snapshot), snapshot.segments[0].files
            if manifest.dense is None:
                return None
            files.verify(defer=False)
            stored = stored_as(manifest)
            vectors = read_vectors(files, stored)[0]
        return WholeDense(vectors, stored, similarity_of(manifest), FaissParams.read(manifest.dense))

    def build(
        self, shard: BuildShard, folder: Path, whole: Path, shared: SharedDense | None, execution: Execution
    ) -> Manifest:
        """Copy every n-th 512 papers, or fewer where the index is small."""
        staging = folder.parent / f".{folder.name}.building"
        dense = shared
        try:
            with contextlib.closing(self._snapshot()) as snapshot:
                papers = snapshot.segments[0].papers
                if papers < shard.count:
                    raise UsageError(
                        f"expected `shards` of at most {papers}, the papers, found {shard.count}"
                    )
                rows, together = np.arange(papers), shards.SHARD_PAPERS
                if papers <= together * (shard.count - 1):
                    together = papers // shard.count
                chosen = rows[rows // together % shard.count == shard.number - 1]
                return copy_papers(Place(folder, staging, whole), snapshot, [chosen], dense, execution)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _snapshot(self) -> Snapshot:
        snapshot = open_snapshot(self.folder)
        if snapshot.plain and snapshot.generation == 0:
            return snapshot
        snapshot.close()
        raise UsageError(
            f"expected an index as it was built in {self.folder}, found one that was updated or has shards; "
            "build one of its papers, or compact it and copy it"
        )


def _sizes(manifest: Manifest) -> tuple[int, ...]:
    """Papers, sentences, and bytes of the papers."""
    return manifest.corpus["papers"], manifest.corpus["sentences"], manifest.files[RECORDS]["bytes"]


@dataclass(frozen=True, slots=True)
class PartShards:
    """The papers of all parts of a corpus (a `qbe.index.building.sharding.ShardSource`); ``settings`` are
    those of the build.
    """

    folders: tuple[Path, ...]
    settings: BuildSettings

    @property
    def origin(self) -> Origin:
        """The origin of the parts; their digests, and the settings."""
        origin = Parts(self.folders).origin
        return dataclasses.replace(origin, facts=[*origin.facts, [self.settings.record([])]])

    def is_of(self, manifests: Sequence[Manifest]) -> bool:
        """By the settings, how the corpus was read, and the number of sentences of each shard's parts."""
        each = [Parts(self.folders, BuildShard(n + 1, len(manifests))) for n in range(len(manifests))]
        return all(
            stages.is_same(manifest.settings, manifest.corpus, self.settings, parts.origin)
            and manifest.corpus["sentences"] == parts.sentences
            for manifest, parts in zip(manifests, each, strict=True)
        )

    def dense(self) -> WholeDense:
        """The vectors of the parts' shards, stored and found as one index of them would be."""
        parts = Parts(self.folders)
        parts.verify()
        files = resolve_encoder(self.settings.encoder, self.settings.precision)
        similarity = files.metadata.encoder_format.similarity
        stored = resolve_stored(self.settings.stored, parts.sentences)
        vectors: Any = ShardVectors(parts.shards(), stored, similarity)
        check_factory(self.settings.faiss, vectors.shape[1], similarity)
        return WholeDense(vectors, stored, similarity, resolve(self.settings.faiss, *vectors.shape))

    def build(
        self, shard: BuildShard, folder: Path, whole: Path, shared: SharedDense | None, execution: Execution
    ) -> Manifest:
        """Join the shard's parts."""
        parts = Parts(self.folders, shard)
        if not parts.sentences:
            raise UsageError(
                f"expected papers for each of {shard.count} `shards`, found none for number {shard.number}: "
                f"each gets every n-th {shards.SHARD_PAPERS} papers; choose fewer"
            )
        manifest = build_segment(parts.source, folder, self.settings, execution, index=whole, shared=shared)
        assert manifest is not None  # a shard without a paper is refused
        return manifest


class ShardVectors:
    """The sentence vectors in files of encoded papers, as an index of them all would store them: ``shape``
    and arrays of rows, ascending, which are read from the files.
    """

    def __init__(self, files: Sequence[Path], stored: str, similarity: str) -> None:
        """``files`` are shards (`qbe.index.building.shards`), in order."""
        self._files, self._stored, self._similarity = files, stored, similarity
        shapes = [_mapped(file).shape for file in files]
        self._starts = starts_of([shape[0] for shape in shapes])
        self.shape = (int(self._starts[-1]), shapes[0][1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> Any:
        """Vectors (n, dimension) as stored."""
        gathered = np.empty((len(rows), self.shape[1]), np.float16)
        for share in shares(rows, self._starts):
            gathered[share.places] = _mapped(self._files[share.part])[share.rows]
        return quantized(gathered, self._similarity) if self._stored == INT8 else gathered


def _mapped(file: Path) -> NDArray[np.float16]:
    """The first array of a file of several: the sentence vectors of a shard."""
    with contextlib.closing(file.open("rb")) as stream:
        version = np.lib.format.read_magic(stream)
        assert version == (1, 0)
        shape, _, kind = np.lib.format.read_array_header_1_0(stream)
        vectors: NDArray[np.float16] = np.memmap(stream, kind, "r", stream.tell(), shape)
        return vectors
