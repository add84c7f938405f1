"""Building an index on a cluster: parts encoded by tasks of Ray, then one index or shards of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qbe.cluster.ray_runtime import ClusterError
from qbe.corpus.reading import Reading
from qbe.errors import IndexBuildError, UsageError, check_package
from qbe.files import lock
from qbe.index.building.parts import BuildShard, Parts, build_part, merge_parts, read_part
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.sharding import PartShards, build_shards
from qbe.index.manifest import PART, Manifest

PARTS_A_PROCESSOR = 2
"""Parts by default: more than one for each processor, so that none waits long for the last one."""

POLL_SECONDS = 1.0

ALWAYS = -1
"""Retries of a task whose node or process died."""


@dataclass(frozen=True, slots=True)
class ClusterBuild:
    """How a build is spread: ``parts`` (None: two for each processor of the cluster), searchable ``shards``
    of them or one index (None), ``threads`` a task, and ``storage`` (an address for fsspec) of finished
    parts, where the nodes do not share the folder of the index.
    """

    parts: int | None = None
    shards: int | None = None
    threads: int = 1
    storage: str | None = None


class Storage:
    """Folders of files below an address such as ``s3://bucket/parts`` or ``/mnt/shared/parts``, in any
    storage that fsspec opens.

    A folder is there once its last file, by which it is told, is.

    >>> storage = Storage("memory://parts")
    >>> folder = Path("finished")
    >>> folder.mkdir()
    >>> _ = (folder / "part.json").write_text("{}")
    >>> storage.has("1", "part.json"), storage.put(folder, "1", "part.json"), storage.has("1", "part.json")
    (False, None, True)
    """

    def __init__(self, address: str) -> None:
        """Raises MissingDependencyError without fsspec or the package that it needs for the protocol,
        ClusterError for an address that it does not know.
        """
        check_package("fsspec")
        import fsspec

        try:
            files, root = fsspec.core.url_to_fs(address)
        except ValueError as error:
            raise ClusterError(f"expected `storage` that fsspec opens, found {address}: {error}") from error
        self._files: Any = files
        self._root = str(root).rstrip("/")

    def has(self, name: str, last: str) -> bool:
        """Whether a folder is there as a whole."""
        return bool(self._files.exists(f"{self._root}/{name}/{last}"))

    def put(self, folder: Path, name: str, last: str) -> None:
        """Copy a folder there, the file ``last`` behind all others."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / last)
        for path in [*files, folder / last]:
            target = f"{self._root}/{name}/{path.relative_to(folder).as_posix()}"
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(path), target)

    def get(self, name: str, folder: Path) -> None:
        """Copy a folder from there."""
        root = f"{self._root}/{name}"
        for path in sorted(self._files.find(root)):
            target = folder / path[path.index(root) + len(root) :].lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(path, str(target))

    def remove(self) -> None:
        """Remove all folders."""
        if self._files.exists(self._root):
            self._files.rm(self._root, recursive=True)


@dataclass(frozen=True, slots=True)
class PartTask:
    """Encodes one part, in whatever process; what a former attempt finished is kept."""

    folder: Path
    corpus: Sequence[str]
    settings: BuildSettings
    reading: Reading
    count: int
    threads: int
    storage: str | None
    working_directory: str

    def __call__(self, number: int) -> str:
        """Encode the part of a number; returns its digest, or its name where it lies in a storage."""
        os.chdir(self.working_directory)  # the corpus is named as it was given
        part = BuildShard(number, self.count)
        if self.storage is None:
            return self._build(self.folder / str(number), part)
        storage = Storage(self.storage)
        if not storage.has(str(number), PART):
            local = Path(tempfile.gettempdir()) / f"qbe-{self.folder.name}" / str(number)
            local.parent.mkdir(parents=True, exist_ok=True)
            self._build(local, part)
            storage.put(local, str(number), PART)
            shutil.rmtree(local)
        return str(number)

    def _build(self, folder: Path, part: BuildShard) -> str:
        corpus, execution = list(self.corpus), Execution(self.threads)
        part_metadata = build_part(
            folder, corpus, self.settings, part, reading=self.reading, resume=True, execution=execution
        )
        return part_metadata.digest


def build_on_cluster(
    ray: Any,
    output: Path,
    corpus: Sequence[str],
    settings: BuildSettings,
    spread: ClusterBuild,
    *,
    reading: Reading,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Build an index at ``output``, of the digest that `qbe.index.building.build.build` gives it, or an index
    of shards (`qbe.index.building.sharding.build_shards`).

    Each part is a task of Ray, repeated on another node where its own one dies. Finished parts lie beside
    ``output`` in a hidden folder that all nodes must see under the same path, or in ``spread.storage``; an
    interrupted build leaves them there, and with ``resume`` encodes nothing twice. Raises UsageError for a
    corpus that is no file or address, IndexBuildError where the target exists or another process builds it,
    and what the stages do.
    """
    execution = execution or Execution()
    if not settings.dense:
        raise UsageError("a cluster encodes: expected vectors, found `bm25_only`; build it without a cluster")
    if output.exists() and any(output.iterdir()) and not (overwrite or resume):
        raise IndexBuildError(
            f"{output} is there already; choose another `folder`, or replace it with `overwrite`"
        )
    output = Path(os.path.realpath(output))
    parts = output.parent / f".{output.name}.parts"
    count = _part_count(ray, spread)
    with lock(output.parent / f".{output.name}.parts.lock") as alone:
        if not alone:
            raise IndexBuildError(f"{output} is being built by another process; wait until it ends")
        if parts.exists() and not resume:
            if not overwrite:
                raise IndexBuildError(
                    f"expected no unfinished build in {parts}, found one; continue it with `resume`, or "
                    "discard it with `overwrite`"
                )
            shutil.rmtree(parts)
        parts.mkdir(exist_ok=True)
        encode = PartTask(
            parts, corpus, settings, reading, count, spread.threads, spread.storage, str(Path.cwd())
        )
        with execution.progress.steps("encoding", "parts", count) as advance:
            list(run_tasks(ray, encode, range(1, count + 1), spread.threads, advance))
        folders = _collected(parts, count, spread.storage)
        manifest = _joined(ray, output, folders, settings, spread, overwrite, resume, execution)
        shutil.rmtree(parts)
        if spread.storage is not None:
            Storage(spread.storage).remove()
    (output.parent / f".{output.name}.parts.lock").unlink(missing_ok=True)
    return manifest


def _part_count(ray: Any, spread: ClusterBuild) -> int:
    processors = int(ray.cluster_resources().get("CPU", 1))
    count = spread.parts or PARTS_A_PROCESSOR * processors
    if spread.shards is None:
        return max(1, count)
    if spread.parts is not None and spread.parts % spread.shards:
        raise UsageError(
            f"expected `parts` as a multiple of the {spread.shards} `shards`, found {spread.parts}"
        )
    return spread.shards * max(1, -(-count // spread.shards))


def run_tasks(
    ray: Any,
    function: Callable[[int], str],
    numbers: Sequence[int],
    threads: int,
    advance: Callable[[int], Any] = lambda _: None,
) -> Iterator[str]:
    """Results of a function of numbers, each a task of Ray, in their order; ``advance`` is called with the
    number of tasks just finished.
    """
    run = ray.remote(
        num_cpus=threads,
        max_retries=ALWAYS,
        retry_exceptions=False,
        scheduling_strategy="SPREAD",
        runtime_env={"env_vars": {"OPENBLAS_NUM_THREADS": "1"}},
    )(_call)
    references = [run.remote(function, number) for number in numbers]
    unfinished = references
    while unfinished:
        finished, unfinished = ray.wait(unfinished, num_returns=len(unfinished), timeout=POLL_SECONDS)
        for reference in finished:
            _result(ray, reference)  # the first error ends the build
        advance(len(finished))
    for reference in references:
        yield _result(ray, reference)


def _call(function: Callable[[int], str], number: int) -> str:
    return function(number)


def _result(ray: Any, reference: Any) -> str:
    """The result of a task; raises what the task raised."""
    from ray.exceptions import RayTaskError

    try:
        result: str = ray.get(reference)
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None
    return result


def _collected(parts: Path, count: int, storage: str | None) -> list[Path]:
    """The folders of all parts, brought here where they lie in a storage."""
    folders = [parts / str(number) for number in range(1, count + 1)]
    for folder in folders if storage is not None else ():
        if not (folder / PART).exists():
            Storage(storage or "").get(folder.name, folder)
        read_part(folder)
    return folders


def _joined(
    ray: Any,
    output: Path,
    folders: Sequence[Path],
    settings: BuildSettings,
    spread: ClusterBuild,
    overwrite: bool,
    resume: bool,
    execution: Execution,
) -> Manifest:
    """One index of all parts, made here, or shards, made by tasks."""
    how: dict[str, Any] = {"overwrite": overwrite, "resume": resume, "execution": execution}
    if spread.shards is None:
        return merge_parts(output, Parts(folders), settings, **how)
    by_tasks = partial(run_tasks, ray, threads=spread.threads)
    return build_shards(output, PartShards(tuple(folders), settings), spread.shards, spread=by_tasks, **how)
