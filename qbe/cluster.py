"""Build and search on a Ray cluster, joined or started: indexes on several machines, searched as one."""

import contextlib
import ctypes
import dataclasses
import itertools
import logging
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from qbe.corpus.records import Reading
from qbe.errors import IndexBuildError, QbeError, UsageError, check_package, check_positive
from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.reader import Ask, IndexReader, combined_manifest
from qbe.index.source import BuildSettings, Execution, open_corpus
from qbe.index.store import Manifest, current, read_manifest, write_lock
from qbe.util.files import publish_directory

LOCAL, AUTO = "local", "auto"
POLL_SECONDS, CONNECT_SECONDS = 1.0, 5.0
FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_ACTION_BYTES = 256  # more than a ``struct sigaction`` of any platform has
DEADLINE = 60.0  # seconds that answers are waited for
RETRY_SECONDS = 0.25  # until an index is asked again all of whose replicas have failed, and may be restarting
CONCURRENCY = 16  # requests that a replica works on at a time
KEPT_GENERATIONS = 2
# Memory that an actor asks for. Ray places one that asks for nothing on any node, whatever it is told; one
# that asks for a share of a processor would keep tasks that want a whole one from its node.
ACTOR_BYTES = 2**20


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
    staging, directory = output.parent / f".{output.name}.shards", Path.cwd()

    def build_share(number: int) -> None:
        """Build the index of every ``count``-th paper, from ``number`` on, or continue an attempt."""
        os.chdir(directory)  # the corpus is named as it was given
        source = open_corpus(list(corpus), reading)
        shared = dataclasses.replace(
            source,
            papers=lambda split, left_out: islice(source.papers(split, left_out), number - 1, None, count),
            facts=[*source.facts, [number, count]],
        )
        build(staging / str(number), shared, settings, reading=reading, resume=True)

    if output.exists() and any(output.iterdir()) and not overwrite:
        raise IndexBuildError(
            f"{output} is there already; choose another `folder`, or replace it with `overwrite`"
        )
    with write_lock(output):
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
        unfinished = [task.remote(number) for number in range(1, count + 1)]
        with execution.progress("building", "indexes", count) as advance:
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
    return combined_manifest([read_manifest(output / str(number)) for number in range(1, count + 1)])


class ClusterError(QbeError):
    """A cluster cannot be reached, or lost what is needed."""


@contextlib.contextmanager
def connected(address: str, threads: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster until the block ends: a new one of this machine alone for
    LOCAL, that of this machine or of RAY_ADDRESS for AUTO, else the one at ``address`` (host:port).

    ``threads`` are the processors of a new cluster. Within a connection that exists already nothing is
    connected or ended. Raises MissingDependencyError without Ray, ClusterError where there is no cluster.
    """
    # Ray would otherwise look for a newer version, and count its users.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = check_package("ray")
    if ray.is_initialized():
        yield ray
        return
    if not address:
        raise UsageError("expected `cluster` local, auto or an address such as 10.0.0.1:6379, found none")
    own = {"num_cpus": threads, "include_dashboard": False} if address == LOCAL else {}
    try:
        if address not in (LOCAL, AUTO):  # Ray would end the process where nothing answers
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if not port.isdecimal():
                raise ValueError("no port")
            socket.create_connection((host or "localhost", int(port)), CONNECT_SECONDS).close()
        # Ray's workers import from the folder that it is started in: one from which they do so anyway.
        with handlers_kept(), contextlib.chdir(Path(ray.__file__).parent.parent):
            ray.init(address, **own, namespace="qbe", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ClusterError(
            f"expected a Ray cluster at {address}, found none ({reason}); start one with: ray start --head"
        ) from error
    try:
        yield ray
    finally:
        with handlers_kept():
            ray.shutdown()


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """The handlers of FATAL are afterwards what they were before the block.

    A running Java handles SIGSEGV and SIGBUS as a part of its ordinary work (null checks, safepoints). Ray
    sets its own handlers where a process connects, and the default ones where it disconnects: the next such
    signal would end the process. Python's ``signal`` module knows the handlers of Python alone, so that those
    of the C library are read and written. No other thread should be within Java during the block.
    """
    library = ctypes.CDLL(None)
    before = {number: ctypes.create_string_buffer(_ACTION_BYTES) for number in FATAL}
    for number, action in before.items():
        library.sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in before.items():
            library.sigaction(int(number), action, None)


class Holder:
    """The actor that holds an index; it opens the newest generation when it is first asked for it."""

    def __init__(self, folder: str, threads: int) -> None:
        self._folder, self._threads = Path(folder), threads
        self._reader = lru_cache(KEPT_GENERATIONS)(self._open)

    def ask(self, generation: int, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method of `IndexReader` on a generation."""
        return getattr(self._reader(generation), method)(*arguments)

    def _open(self, generation: int) -> IndexReader:
        reader = IndexReader(self._folder, self._threads)
        if reader.generation != generation:
            found = f"expected generation {generation} of {self._folder}, found {reader.generation}"
            raise UsageError(f"{found}; search again")  # it was updated while it was searched
        return reader


class ClusterIndex(Index):
    """Indexes held by the processes of a cluster; papers and labels are read from the shared folders."""

    def __init__(
        self, folders: Sequence[Path], replicas: Sequence[Sequence[Any]], deadline: float, **options: Any
    ) -> None:
        """``replicas`` are the actors of each index; options are those of `qbe.index.index.Index`."""
        self.replicas, self._deadline, self._turn = replicas, deadline, itertools.count()
        self._resources = ExitStack()
        super().__init__(folders, **options)

    def close(self) -> None:
        super().close()
        self._resources.close()

    def _asking(self, readers: Sequence[IndexReader]) -> Ask:
        """Ask a replica of each index, and the next one where it died: Ray starts it again.

        Raises ClusterError for those that do not answer in time; what one raises itself is raised here.
        """
        generations = [reader.generation for reader in readers]

        def ask(method: str, asked: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
            import ray
            from ray.exceptions import RayError, RayTaskError

            turn, deadline = next(self._turn), time.monotonic() + self._deadline
            answers: dict[int, Any] = {}
            failures = Counter[int]()

            def send(shard: int) -> Any:
                replica = self.replicas[shard][(turn + failures[shard]) % len(self.replicas[shard])]
                return replica.ask.remote(generations[shard], method, asked[shard])

            pending = {send(shard): shard for shard in asked}
            while pending:
                # A request that fails early must be noticed while others are still waited for.
                ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=RETRY_SECONDS)
                failed = []
                for reference in ready:
                    shard = pending.pop(reference)
                    try:
                        answers[shard] = ray.get(reference)
                    except RayTaskError as error:
                        raise error.cause from None
                    except RayError:
                        failures[shard] += 1
                        failed.append(shard)
                if any(failures[shard] % len(self.replicas[shard]) == 0 for shard in failed):
                    time.sleep(RETRY_SECONDS)
                pending.update({send(shard): shard for shard in failed})
                if pending and time.monotonic() >= deadline:
                    names = ", ".join(str(self.folders[shard]) for shard in sorted(pending.values()))
                    raise ClusterError(
                        f"no answer from {names} within {self._deadline:g} s; wait until its node is back, "
                        "or raise `deadline`"
                    )
            return answers

        return ask


def open_index(
    folders: str | Path | Sequence[str | Path],
    cluster: str,
    *,
    replicas: int = 1,
    deadline: float = DEADLINE,
    threads: int | None = None,
    **options: Any,
) -> ClusterIndex:
    """Open indexes, also those in a folder that ``qbe cluster index`` wrote, on a cluster, each held by
    ``replicas`` processes that end when it is closed.

    The nodes of the ``cluster`` (``local``, ``auto``, or an address) must see the folders under the same
    path; options are those of `qbe.index.index.Index`. Raises what that does, MissingDependencyError without
    Ray, and ClusterError where the cluster cannot be reached or does not answer within ``deadline`` seconds.
    """
    check_positive("replicas", replicas)
    check_positive("deadline", deadline)
    indexes = list[Path]()
    for folder in map(Path, [folders] if isinstance(folders, str | Path) else folders):
        inside = [folder]
        if folder.is_dir() and not (current(folder) / "manifest.json").exists():
            numbered = (each for each in folder.iterdir() if each.is_dir() and each.name.isdecimal())
            inside = sorted(numbered, key=lambda each: int(each.name)) or inside
        if inside == [folder]:
            read_manifest(folder)
        indexes += [each.resolve() for each in inside]
    with ExitStack() as stack:
        ray = stack.enter_context(connected(cluster, threads))
        actors = _start(ray, indexes, replicas, threads or 1)
        stack.callback(lambda: [ray.kill(actor, no_restart=True) for each in actors for actor in each])
        index = ClusterIndex(indexes, actors, deadline, threads=threads, **options)
        index._resources = stack.pop_all()
        return index


def _start(ray: Any, folders: Sequence[Path], replicas: int, threads: int) -> list[list[Any]]:
    """Start the replicas of all indexes, those of one on different nodes where there are enough."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor = ray.remote(
        num_cpus=0,
        memory=ACTOR_BYTES,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=CONCURRENCY,
        runtime_env={"env_vars": {"OMP_WAIT_POLICY": "PASSIVE"}},
    )(Holder)
    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
    places = [NodeAffinitySchedulingStrategy(node, soft=True) for node in nodes]  # or another if it is gone
    placed = [actor.options(scheduling_strategy=place) for place in places]
    return [
        [placed[(shard + n) % len(placed)].remote(str(folder), threads) for n in range(replicas)]
        for shard, folder in enumerate(folders)
    ]
