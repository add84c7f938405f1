"""What shards are made of, whether papers are copied or their vectors come from parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from qbe.index.building.settings import Execution
from qbe.index.dense.ann import AnnParams, SharedDense
from qbe.index.dense.stored import Vectors
from qbe.index.manifest import Manifest
from qbe.index.parts.part import BuildShard


class WholeDense(NamedTuple):
    """The vectors of all shards: ``vectors`` (sentences, dimension) in the order of the corpus, which need no
    more than a length, a shape and arrays of rows; how they are ``stored`` and compared; and the parameters
    of one FAISS index of all.
    """

    vectors: Vectors
    stored: str
    similarity: str
    params: AnnParams


class ShardSource(Protocol):
    """The papers of shards; a shard has every n-th 512 papers of the corpus, as a part does.

    A source can be pickled, so that other processes can build shards of it.
    """

    def describe(self) -> dict[str, Any]:
        """What determines the shards, as JSON values."""

    def is_of(self, manifests: Sequence[Manifest]) -> bool:
        """Whether shards that are there already, of these manifests in their order, can be those of this
        source.
        """

    def newest(self) -> int:
        """When the source was last changed, in nanoseconds."""

    def dense(self) -> WholeDense | None:
        """The vectors of all shards; None where there are none."""

    def build(
        self, shard: BuildShard, folder: Path, whole: Path, shared: SharedDense | None, execution: Execution
    ) -> Manifest:
        """Build a shard in a folder, where nothing is, as a segment of the index ``whole``."""
