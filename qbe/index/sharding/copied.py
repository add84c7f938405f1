"""Shards of an index that exists: nothing is encoded."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import UsageError
from qbe.index.building import shards
from qbe.index.building.settings import Execution
from qbe.index.building.staging import Place
from qbe.index.dense.ann import AnnParams, SharedDense
from qbe.index.dense.vectors import read_vectors
from qbe.index.live.copying import CopiedDense, copy_papers
from qbe.index.manifest import MANIFEST, Manifest, similarity_of, stored_as
from qbe.index.papers import RECORDS
from qbe.index.parts.part import BuildShard
from qbe.index.segments.combined import combined_manifest
from qbe.index.segments.snapshot import Snapshot, open_snapshot
from qbe.index.sharding.contracts import WholeDense


@dataclass(frozen=True, slots=True)
class IndexShards:
    """The papers of the index in ``folder``, which has one segment and no deleted papers (a
    `qbe.index.sharding.contracts.ShardSource`).

    >>> IndexShards(index.folder).dense().params.kind
    'flat'
    """

    folder: Path

    def describe(self) -> dict[str, Any]:
        """The digest of the index."""
        with contextlib.closing(self._snapshot()) as snapshot:
            return {"index": combined_manifest(snapshot).digest}

    def is_of(self, manifests: Sequence[Manifest]) -> bool:
        """By the settings, and the numbers of papers, of sentences, and of bytes of the papers."""
        with contextlib.closing(self._snapshot()) as snapshot:
            manifest = combined_manifest(snapshot)
        return all(each.settings == manifest.settings for each in manifests) and _sizes(manifest) == tuple(
            map(sum, zip(*map(_sizes, manifests), strict=True))
        )

    def newest(self) -> int:
        """When the index was built."""
        return (self.folder / MANIFEST).stat().st_mtime_ns

    def dense(self) -> WholeDense | None:
        """The vectors of the index, stored and found as they are there."""
        with contextlib.closing(self._snapshot()) as snapshot:
            manifest, files = combined_manifest(snapshot), snapshot.segments[0].files
            if manifest.dense is None:
                return None
            files.verify(defer=False)
            stored = stored_as(manifest)
            vectors = read_vectors(files, stored)[0]
        return WholeDense(vectors, stored, similarity_of(manifest), AnnParams.read(manifest.dense))

    def build(
        self, shard: BuildShard, folder: Path, whole: Path, shared: SharedDense | None, execution: Execution
    ) -> Manifest:
        """Copy every n-th 512 papers, or fewer where the index is small."""
        staging = folder.parent / f".{folder.name}.building"
        dense = None if shared is None else CopiedDense(*shared)
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
