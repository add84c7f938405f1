"""What shards are made of, whether papers are copied or their vectors come from parts."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.building import shards
from qbe.index.building.build import build_segment
from qbe.index.building.compaction import copy_papers
from qbe.index.building.parts import BuildShard, Parts
from qbe.index.building.rejected import check_replaceable, rejected_file
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Origin
from qbe.index.building.staging import STATE, build_place, check_target, read_state, save_state
from qbe.index.dense.ann import INT8, FaissParams, SharedDense, resolve, resolve_stored
from qbe.index.dense.faiss_build import check_factory, train, writing
from qbe.index.dense.stored import Vectors, quantized, read_vectors
from qbe.index.manifest import MANIFEST, Manifest, read_manifest
from qbe.index.rows import Rows, shares, starts_of
from qbe.index.snapshot import COMMIT, Commit, Segment, Snapshot, open_snapshot, segment_name, write_commit
from qbe.index.views import combined_manifest
from qbe.models.folders import resolve_encoder
from qbe.util.files import publish_directory, sync_tree


class WholeDense(NamedTuple):
    """The vectors of all shards: ``vectors`` (sentences, dimension) in the order of the corpus, which need no
    more than a length, a shape and arrays of rows; how they are ``stored`` and compared; and the parameters
    of one FAISS index of all.
    """

    vectors: Vectors
    stored: str
    similarity: str
    params: FaissParams


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

    >>> from qbe.index.building.sharding import IndexShards
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
        try:
            shared = _shared(place.staging, source, execution)
            task = ShardTask(source, place.staging, place.output, count, shared, execution.threads)
            digests = []
            with execution.progress.steps("building", "shards", count) as advance:
                for digest in spread(task, range(1, count + 1)):
                    digests.append(digest)
                    advance(1)
        except UsageError:  # the source cannot be so many shards: nothing of this could be resumed
            shutil.rmtree(place.staging, ignore_errors=True)
            raise
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
    settings, sentences = source.stated
    return (
        list(existing.segments) == _segments(manifest.digest for manifest in manifests)
        and source.origin.changed <= (output / COMMIT).stat().st_mtime_ns
        and all(manifest.settings == settings for manifest in manifests)
        and sum(manifest.corpus["sentences"] for manifest in manifests) == sentences
        and all(manifest.corpus.get("reading", {}) == source.origin.reading for manifest in manifests)
    )


def _segments(digests: Iterable[str]) -> list[Segment]:
    return [Segment(segment_name(number), digest) for number, digest in enumerate(digests, start=1)]


def _shared(staging: Path, source: ShardSource, execution: Execution) -> SharedDense | None:
    """What the shards have in common, learned of a sample of all vectors."""
    dense = source.dense()
    if dense is None:
        return None
    if dense.params.is_exact:
        return SharedDense(dense.stored, dense.params)
    file = staging / LEARNED
    if not file.exists():
        import faiss

        execution.progress.stage("learning centroids")
        partial_file = staging / f".{LEARNED}.partial"
        with writing(staging, execution.threads):
            learned = train(dense.vectors, dense.similarity, dense.params)
            faiss.write_index(learned, str(partial_file))
        partial_file.replace(file)
    return SharedDense(dense.stored, dense.params, file)


def _whole(output: Path) -> Manifest:
    with contextlib.closing(open_snapshot(output)) as snapshot:
        return combined_manifest(snapshot)


@dataclass(frozen=True, slots=True)
class IndexShards:
    """The papers of the index in ``folder``, which has one segment and no deleted papers.

    >>> IndexShards(index.folder).dense().params.factory
    'SQfp16'
    """

    folder: Path

    @property
    def origin(self) -> Origin:
        """The digest of the index, and when it was built."""
        manifest = self._manifest()
        changed = (self.folder / MANIFEST).stat().st_mtime_ns
        return Origin(tuple(manifest.settings["corpus"]), [[manifest.digest]], changed)

    @property
    def stated(self) -> tuple[Mapping[str, Any], int]:
        """The settings of the index, and its number of sentences."""
        manifest = self._manifest()
        return manifest.settings, manifest.corpus["sentences"]

    def dense(self) -> WholeDense | None:
        """The vectors of the index, stored and found as they are there."""
        with contextlib.closing(self._snapshot()) as snapshot:
            manifest, files = snapshot.segments[0].manifest, snapshot.segments[0].files
            if manifest.dense is None:
                return None
            files.verify()
            stored = manifest.stored
            vectors = read_vectors(files, stored)[0]
        return WholeDense(vectors, stored, manifest.similarity, FaissParams.read(manifest.dense))

    def build(
        self,
        shard: BuildShard,
        folder: Path,
        whole: Path,  # noqa: ARG002
        shared: SharedDense | None,
        execution: Execution,
    ) -> Manifest:
        """Copy every n-th 512 papers, or fewer where the index is small."""
        with contextlib.closing(self._snapshot()) as snapshot:
            papers = snapshot.segments[0].papers
            if papers < shard.count:
                raise UsageError(f"expected `shards` of at most {papers}, the papers, found {shard.count}")
            rows, together = np.arange(papers), shards.SHARD_PAPERS
            if papers <= together * (shard.count - 1):
                together = papers // shard.count
            chosen = rows[rows // together % shard.count == shard.number - 1]
            return copy_papers(folder, snapshot, chosen, shared, execution)

    def _manifest(self) -> Manifest:
        with contextlib.closing(self._snapshot()) as snapshot:
            return snapshot.segments[0].manifest

    def _snapshot(self) -> Snapshot:
        snapshot = open_snapshot(self.folder)
        if snapshot.plain and snapshot.generation == 0:
            return snapshot
        snapshot.close()
        raise UsageError(
            f"expected an index as it was built in {self.folder}, found one that was updated or has shards; "
            "build one of its papers, or compact it and copy it"
        )


@dataclass(frozen=True, slots=True)
class PartShards:
    """The papers of all parts of a corpus; ``settings`` are those of the build."""

    folders: tuple[Path, ...]
    settings: BuildSettings

    @property
    def origin(self) -> Origin:
        """The origin of the parts; their digests, and the settings."""
        origin = Parts(self.folders).origin
        return dataclasses.replace(origin, facts=[*origin.facts, [self.settings.record([])]])

    @property
    def stated(self) -> tuple[Mapping[str, Any], int]:
        """The settings, with the names of the corpus's sources, and the number of sentences."""
        parts = Parts(self.folders)
        return self.settings.record(parts.origin.names), parts.sentences

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
        manifest = build_segment(parts.source, folder, self.settings, execution, whole, shared=shared)
        assert manifest is not None  # a shard without a paper is refused
        return manifest


ShardSource = IndexShards | PartShards
"""The papers of shards; a shard has every n-th 512 papers of the corpus, as a part does.

The facts of a source's ``origin`` determine the shards; ``stated`` are the settings that the manifest of each
shard states, and the number of sentences of all. A source can be pickled, so that other processes can build
shards of it.
"""


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
