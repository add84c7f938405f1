"""Build on a Ray cluster: each task builds an ordinary index of its share of the papers."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from qbe.corpus.records import Reading
from qbe.errors import IndexBuildError
from qbe.index.build import build
from qbe.index.reader import combined_manifest
from qbe.index.source import BuildSettings, Execution, open_corpus
from qbe.index.store import Manifest, read_manifest
from qbe.util.files import lock, publish_directory

POLL_SECONDS = 1.0


def build_share(
    number: int,
    count: int,
    folder: Path,
    corpus: Sequence[str],
    settings: BuildSettings,
    reading: Reading,
    working_directory: str,
) -> None:
    """Build the index of every ``count``-th paper of a corpus, from ``number`` on, or continue an attempt."""
    os.chdir(working_directory)  # the corpus is named as it was given
    source = open_corpus(list(corpus), reading)
    shared = dataclasses.replace(
        source,
        papers=lambda split, left_out: islice(source.papers(split, left_out), number - 1, None, count),
        facts=[*source.facts, [number, count]],
    )
    build(folder / str(number), shared, settings, reading=reading, resume=True)


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
    from ray.exceptions import RayTaskError

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
        task = ray.remote(
            num_cpus=1,
            max_retries=-1,  # as often as a node or process dies
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"OPENBLAS_NUM_THREADS": "1"}},
        )(build_share)
        numbers, shared = range(1, count + 1), (count, staging, corpus, settings, reading, str(Path.cwd()))
        unfinished = [task.remote(number, *shared) for number in numbers]
        with execution.progress.steps("building", "indexes", count) as advance:
            while unfinished:
                done, unfinished = ray.wait(unfinished, num_returns=len(unfinished), timeout=POLL_SECONDS)
                try:
                    ray.get(done)
                except RayTaskError as error:
                    for left in unfinished:
                        ray.cancel(left)
                    raise error.cause from None
                advance(len(done))
        publish_directory(staging, output)
    return combined_manifest([read_manifest(output / str(number)) for number in numbers])
