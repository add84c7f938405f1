"""Building an index on a cluster: parts encoded by tasks of Ray, then one index or shards of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qbe.cluster.ray_runtime import raised_in_task
from qbe.corpus.records import Reading
from qbe.errors import IndexBuildError, UsageError
from qbe.index.building.parts import BuildShard, Parts, build_part, merge_parts, read_part
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.sharding import PartShards, build_shards
from qbe.index.manifest import Manifest
from qbe.util.files import lock

PARTS_A_PROCESSOR = 2
"""Parts by default: more than one for each processor, so that none waits long for the last one."""

POLL_SECONDS = 1.0

ALWAYS = -1
"""Retries of a task whose node or process died."""


@dataclass(frozen=True, slots=True)
class ClusterBuild:
    """How a build is spread: ``parts`` (None: two for each processor of the cluster), and searchable
    ``shards`` of them or one index (None).
    """

    parts: int | None = None
    shards: int | None = None


@dataclass(frozen=True, slots=True)
class PartTask:
    """Encodes one part, in whatever process; what a former attempt finished is kept."""

    folder: Path
    corpus: Sequence[str]
    settings: BuildSettings
    reading: Reading
    count: int
    working_directory: str

    def __call__(self, number: int) -> str:
        """Encode the part of a number; returns its digest."""
        os.chdir(self.working_directory)  # the corpus is named as it was given
        return build_part(
            self.folder / str(number),
            list(self.corpus),
            self.settings,
            BuildShard(number, self.count),
            reading=self.reading,
            resume=True,
            execution=Execution(threads=1),
        ).digest


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
    ``output`` in a hidden folder that all nodes must see under the same path; an interrupted build leaves
    them there, and with ``resume`` encodes nothing twice. Raises UsageError for a corpus that is no file or
    address, IndexBuildError where the target exists or another process builds it, and what the stages do.
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
        encode = PartTask(parts, corpus, settings, reading, count, str(Path.cwd()))
        with execution.progress.steps("encoding", "parts", count) as advance:
            list(run_tasks(ray, encode, range(1, count + 1), advance))
        folders = [parts / str(number) for number in range(1, count + 1)]
        for folder in folders:
            read_part(folder)
        manifest = _joined(ray, output, folders, settings, spread, overwrite, resume, execution)
        shutil.rmtree(parts)
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
    advance: Callable[[int], Any] = lambda _: None,
) -> Iterator[str]:
    """Results of a function of numbers, each a task of Ray, in their order; ``advance`` is called with the
    number of tasks just finished.
    """
    run = ray.remote(
        num_cpus=1,
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
        raise raised_in_task(error) from None
    return result


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
    by_tasks = partial(run_tasks, ray)
    return build_shards(output, PartShards(tuple(folders), settings), spread.shards, spread=by_tasks, **how)
