"""Search several indexes on a Ray cluster, each held by processes of its own."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from qbe.cluster.ray_runtime import ClusterError, connected
from qbe.errors import UsageError, check_positive
from qbe.index.index import Index
from qbe.index.reader import Ask, IndexReader
from qbe.index.store import current, read_manifest

DEADLINE = 60.0  # seconds that answers are waited for
RETRY_SECONDS = 0.25  # until an index is asked again all of whose replicas have failed, and may be restarting
CONCURRENCY = 16  # requests that a replica works on at a time
KEPT_GENERATIONS = 2
# Memory that an actor asks for. Ray places one that asks for nothing on any node, whatever it is told; one
# that asks for a share of a processor would keep tasks that want a whole one from its node.
ACTOR_BYTES = 2**20


class Holder:
    """The actor that holds an index; it opens the newest generation when it is first asked for it."""

    def __init__(self, folder: str, threads: int) -> None:
        self._folder, self._threads = Path(folder), threads
        self._open: OrderedDict[int, IndexReader] = OrderedDict()

    def ask(self, generation: int, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method of `IndexReader` on a generation."""
        if generation not in self._open:
            reader = IndexReader(self._folder, self._threads)
            if reader.generation != generation:
                found = f"expected generation {generation} of {self._folder}, found {reader.generation}"
                raise UsageError(f"{found}; search again")  # it was updated while it was searched
            self._open[generation] = reader
            while len(self._open) > KEPT_GENERATIONS:
                self._open.popitem(last=False)
        return getattr(self._open[generation], method)(*arguments)

    def process(self) -> int:
        return os.getpid()


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

    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
    actor = ray.remote(
        num_cpus=0,
        memory=ACTOR_BYTES,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=CONCURRENCY,
        runtime_env={"env_vars": {"OMP_WAIT_POLICY": "PASSIVE"}},
    )(Holder)

    def start(shard: int, replica: int) -> Any:
        node = nodes[(shard + replica) % len(nodes)]  # or any other one where it is gone
        place = NodeAffinitySchedulingStrategy(node, soft=True)
        return actor.options(scheduling_strategy=place).remote(str(folders[shard]), threads)

    return [[start(shard, replica) for replica in range(replicas)] for shard in range(len(folders))]
