"""What shards are made of, whether papers are copied or their vectors come from parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from qbe.errors import UsageError
from qbe.files import publish_directory, sync_tree
from qbe.index.building.part import BuildShard
from qbe.index.building.rejected import check_replaceable, rejected_file
from qbe.index.building.settings import Execution
from qbe.index.building.source import Origin
from qbe.index.building.staging import STATE, build_place, check_target, read_state, save_state
from qbe.index.dense.ann import FaissParams, Learned, SharedDense
from qbe.index.dense.faiss_build import train, writing
from qbe.index.dense.stored import Vectors
from qbe.index.manifest import MANIFEST, Manifest, read_manifest
from qbe.index.segments.combined import combined_manifest
from qbe.index.segments.commit import COMMIT, Commit, Segment, segment_name, write_commit
from qbe.index.segments.snapshot import open_snapshot


class WholeDense(NamedTuple):
    """The vectors of all shards: ``vectors`` (sentences, dimension) in the order of the corpus, which need no
    more than a length, a shape and arrays of rows; how they are ``stored`` and compared; and the parameters
    of one FAISS index of all.
    """

    vectors: Vectors
    stored: str
    similarity: str
    params: FaissParams


class ShardSource(Protocol):
    """The papers of shards; a shard has every n-th 512 papers of the corpus, as a part does.

    A source can be pickled, so that other processes can build shards of it.
    """

    @property
    def origin(self) -> Origin:
        """Where the papers come from; its facts determine the shards."""

    def is_of(self, manifests: Sequence[Manifest]) -> bool:
        """Whether shards that are there already, of these manifests in their order, can be those of this
        source.
        """

    def dense(self) -> WholeDense | None:
        """The vectors of all shards; None where there are none."""

    def build(
        self, shard: BuildShard, folder: Path, whole: Path, shared: SharedDense | None, execution: Execution
    ) -> Manifest:
        """Build a shard in a folder, where nothing is, as a segment of the index ``whole``."""


LEARNED = "learned.faiss"
"""In the folder of an unfinished build: the centroids and codes that all shards share."""

Spread = Callable[[Callable[[int], str], Sequence[int]], Iterable[str]]
"""Applies a function to numbers, in any order and place, and gives its results in their order."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard to be built, wherever that is: the source of its papers, the hidden ``folder`` of the build,
    the index ``whole`` that it will be part of, how many shards there are, and what they share.
    """

    source: ShardSource
    folder: Path
    whole: Path
    count: int
    shared: SharedDense | None
    threads: int

    def __call__(self, number: int) -> str:
        """Build the shard of that number, unless it is there already; returns its digest."""
        folder = self.folder / segment_name(number)
        if (folder / MANIFEST).exists():
            return read_manifest(folder).digest
        folder.parent.mkdir(exist_ok=True)
        shard = BuildShard(number, self.count)
        built = self.source.build(shard, folder, self.whole, self.shared, Execution(self.threads))
        return built.digest


def build_shards(
    output: Path,
    source: ShardSource,
    count: int,
    *,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
    spread: Spread = map,
) -> Manifest:
    """Build an index of so many shards at ``output``; it appears there complete or not at all.

    Each shard is a segment. Vectors are stored as in one index of all papers, and where FAISS's index has
    lists, all shards have its centroids and codes, so that a search of the shards together finds what a
    search of that index finds. ``spread`` carries out the building of the shards. An interrupted build keeps
    finished shards for ``resume``, which returns the manifest where the build had ended. Returns the manifest
    of the whole.

    Raises UsageError for fewer than 2 shards, IndexBuildError where the target exists, is no index or holds
    files that are not an index's, or another process builds it, and what the source does.

    >>> from qbe.index.building.shard_sources import IndexShards
    >>> build_shards(Path("indexes/one-shard"), IndexShards(index.folder), 1)
    Traceback (most recent call last):
        ...
    qbe.errors.UsageError: expected `shards` of at least 2, found 1
    """
    if count < 2:
        raise UsageError(f"expected `shards` of at least 2, found {count}")
    execution = execution or Execution()
    check_replaceable(output)
    with build_place(output) as place:
        finished = check_target(
            place,
            lambda existing: _is_built(existing, place.output, source, count),
            overwrite=overwrite,
            resume=resume,
        )
        if finished is not None:
            return _whole(place.output)
        inputs: dict[str, Any] = {"sources": source.origin.facts, "shards": count}
        if read_state(place.staging, inputs) is None:
            shutil.rmtree(place.staging, ignore_errors=True)
            place.staging.mkdir(parents=True)
            save_state(place.staging, {"inputs": inputs})
        with execution.timings.stage("learning"):
            shared = _shared(place.staging, source, execution)
        task = ShardTask(source, place.staging, place.output, count, shared, execution.threads)
        digests = []
        with execution.progress.steps("building", "shards", count) as advance:
            for digest in spread(task, range(1, count + 1)):
                digests.append(digest)
                advance(1)
        (place.staging / LEARNED).unlink(missing_ok=True)
        sync_tree(place.staging)
        # No later segment has the name of one of these: a commit names its segment by its generation.
        write_commit(place.staging, Commit(count, _segments(digests)))
        publish_directory(place.staging, place.output)
        rejected_file(place.output).unlink(missing_ok=True)  # of an index that was replaced
        (place.output / STATE).unlink(missing_ok=True)
        return _whole(place.output)


def _is_built(existing: Commit | Manifest, output: Path, source: ShardSource, count: int) -> bool:
    """Whether what is there is so many shards of the source, never updated."""
    if not isinstance(existing, Commit) or not existing.generation == len(existing.segments) == count:
        return False
    manifests = [read_manifest(output / segment.name) for segment in existing.segments]
    return (
        list(existing.segments) == _segments(manifest.digest for manifest in manifests)
        and source.origin.changed <= (output / COMMIT).stat().st_mtime_ns
        and source.is_of(manifests)
    )


def _segments(digests: Iterable[str]) -> list[Segment]:
    return [Segment(segment_name(number), digest) for number, digest in enumerate(digests, start=1)]


def _shared(staging: Path, source: ShardSource, execution: Execution) -> SharedDense | None:
    """What the shards have in common, learned of a sample of all vectors."""
    dense = source.dense()
    if dense is None:
        return None
    if dense.params.is_exact:
        return SharedDense(dense.stored, Learned(dense.params))
    file = staging / LEARNED
    if not file.exists():
        import faiss

        execution.progress.stage("learning centroids")
        partial_file = staging / f".{LEARNED}.partial"
        with writing(staging, execution.threads):
            learned = train(dense.vectors, dense.similarity, dense.params)
            faiss.write_index(learned, str(partial_file))
        partial_file.replace(file)
    return SharedDense(dense.stored, Learned(dense.params, file))


def _whole(output: Path) -> Manifest:
    snapshot = open_snapshot(output)
    try:
        return combined_manifest(snapshot)
    finally:
        snapshot.close()
