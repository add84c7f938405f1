"""Shards of a corpus whose parts were encoded apart: nothing is encoded again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.building import shards, stages
from qbe.index.building.build import build_segment
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.dense.ann import INT8, SharedDense, checked, resolve, resolve_stored
from qbe.index.dense.stored import quantized
from qbe.index.manifest import Manifest
from qbe.index.parts.part import BuildShard
from qbe.index.parts.source import PartsSource
from qbe.index.rows import Rows, shares, starts_of
from qbe.index.sharding.contracts import WholeDense
from qbe.models.encoder_files import resolve_encoder


@dataclass(frozen=True, slots=True)
class PartShards:
    """The papers of all parts of a corpus (a `qbe.index.sharding.contracts.ShardSource`); ``settings`` are
    those of the build.
    """

    folders: tuple[Path, ...]
    settings: BuildSettings

    def describe(self) -> dict[str, Any]:
        """The digests of the parts, and the settings."""
        return {"parts": PartsSource(self.folders).describe(), "settings": self.settings.record([])}

    def is_of(self, manifests: Sequence[Manifest]) -> bool:
        """By the settings, how the corpus was read, and the number of sentences of each shard's parts."""
        sources = [
            PartsSource(self.folders, BuildShard(n + 1, len(manifests))) for n in range(len(manifests))
        ]
        return all(
            stages.is_same(manifest.settings, manifest.corpus, self.settings, source)
            and manifest.corpus["sentences"] == source.sentences
            for manifest, source in zip(manifests, sources, strict=True)
        )

    def newest(self) -> int:
        """When the last part was finished."""
        return PartsSource(self.folders).newest()

    def dense(self) -> WholeDense:
        """The vectors of the parts' shards, stored and found as one index of them would be."""
        if self.settings.ann.tune_recall is not None:
            raise UsageError("`tune_recall` measures one index of all papers; drop it, or `shards`")
        source = PartsSource(self.folders)
        source.verify()
        files = resolve_encoder(self.settings.encoder, self.settings.precision)
        similarity = files.metadata.encoder_format.similarity
        stored = resolve_stored(self.settings.stored, source.sentences)
        vectors: Any = ShardVectors(source.shards(), stored, similarity)
        ann = checked(self.settings.ann, *vectors.shape)
        return WholeDense(vectors, stored, similarity, resolve(ann, *vectors.shape))

    def build(
        self, shard: BuildShard, folder: Path, whole: Path, shared: SharedDense | None, execution: Execution
    ) -> Manifest:
        """Join the shard's parts."""
        source = PartsSource(self.folders, shard)
        if not source.sentences:
            raise UsageError(
                f"expected papers for each of {shard.count} `shards`, found none for number {shard.number}: "
                f"each gets every n-th {shards.SHARD_PAPERS} papers; choose fewer"
            )
        manifest = build_segment(source, folder, self.settings, execution, index=whole, shared=shared)
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
