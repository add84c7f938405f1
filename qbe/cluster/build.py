"""Building on a cluster: tasks of Ray that each build an ordinary index of their share of the papers."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from qbe.cluster.ray_runtime import raised_in_task
from qbe.corpus.records import Reading
from qbe.errors import IndexBuildError
from qbe.index.build import build
from qbe.index.several import combined_manifest
from qbe.index.source import BuildSettings, Execution, open_corpus
from qbe.index.store import Manifest, read_manifest
from qbe.util.files import lock, publish_directory

POLL_SECONDS = 1.0
ALWAYS = -1
"""Retries of a task whose node or process died."""


@dataclass(frozen=True, slots=True)
class Share:
    """Build the index of every n-th paper of a corpus; continue a former attempt."""

    folder: Path
    corpus: Sequence[str]
    settings: BuildSettings
    reading: Reading
    count: int
    working_directory: str

    def __call__(self, number: int) -> str:
        """Build the index of a number, from 1; returns its digest."""
        os.chdir(self.working_directory)  # the corpus is named as it was given
        source = open_corpus(list(self.corpus), self.reading)
        first, step = number - 1, self.count
        shared = dataclasses.replace(
            source,
            papers=lambda split, left_out: islice(source.papers(split, left_out), first, None, step),
            origin=dataclasses.replace(source.origin, facts=[*source.origin.facts, [number, step]]),
        )
        return build(
            self.folder / str(number),
            shared,
            self.settings,
            reading=self.reading,
            resume=True,
            execution=Execution(threads=1),
        ).digest


def build_on_cluster(
    ray: Any,
    output: Path,
    corpus: Sequence[str],
    settings: BuildSettings,
    shards: int | None = None,
    *,
    reading: Reading,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Build ``shards`` ordinary indexes (by default one per processor of the cluster) as ``output/1``, ...

    Each is a task of Ray that reads the corpus and keeps every n-th paper; it is repeated on another node
    where its own one dies. The work is done in a hidden folder beside ``output``, which all nodes must see
    under the same path; an interrupted build leaves it there, and with ``resume`` builds nothing twice.
    Returns a manifest of all. Raises IndexBuildError where the target exists or another process builds it.
    """
    execution = execution or Execution()
    count = max(1, shards or int(ray.cluster_resources().get("CPU", 1)))
    output = Path(os.path.realpath(output))
    staging = output.parent / f".{output.name}.shards"
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise IndexBuildError(
            f"{output} is there already; choose another `folder`, or replace it with `overwrite`"
        )
    with lock(output.parent / f".{output.name}.lock") as alone:
        if not alone:
            raise IndexBuildError(f"{output} is being built by another process; wait until it ends")
        if staging.exists() and not resume:
            if not overwrite:
                raise IndexBuildError(
                    f"an unfinished build is in {staging}; continue it with `resume`, or discard it with "
                    "`overwrite`"
                )
            shutil.rmtree(staging)
        staging.mkdir(parents=True, exist_ok=True)
        share = Share(staging, corpus, settings, reading, count, str(Path.cwd()))
        with execution.progress.steps("building", "indexes", count) as advance:
            for _ in run_tasks(ray, share, range(1, count + 1), advance):
                pass
        publish_directory(staging, output)
    return combined_manifest([read_manifest(output / str(number)) for number in range(1, count + 1)])


def run_tasks(
    ray: Any, function: Callable[[int], str], numbers: Iterable[int], advance: Callable[[int], Any]
) -> Iterator[str]:
    """Yield a function's results for some numbers, each computed by a task on any node.

    ``advance`` is called with how many have just finished. Raises what the first failing task raises.
    """
    from ray.exceptions import RayTaskError

    task = ray.remote(
        num_cpus=1,
        max_retries=ALWAYS,
        scheduling_strategy="SPREAD",
        runtime_env={"env_vars": {"OPENBLAS_NUM_THREADS": "1"}},
    )(_call)
    unfinished = [task.remote(function, number) for number in numbers]
    while unfinished:
        finished, unfinished = ray.wait(unfinished, num_returns=len(unfinished), timeout=POLL_SECONDS)
        for reference in finished:
            try:
                yield ray.get(reference)
            except RayTaskError as error:
                for left in unfinished:
                    ray.cancel(left)
                raise raised_in_task(error) from None
        advance(len(finished))


def _call(function: Callable[[int], str], number: int) -> str:
    return function(number)
