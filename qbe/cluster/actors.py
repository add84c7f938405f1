"""Shards as Ray actors: where they run, and how many replicas there are of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.cluster.calls import Patience, ShardCalls
from qbe.cluster.shard import Shard

LITTLE_MEMORY = 2**20
"""Bytes. Ray places an actor that asks for nothing on any node, whatever it is told; one that asks for a
share of a processor would keep tasks that want a whole one from its node.
"""

CONCURRENCY = 16
"""Requests that a replica works on at a time; waiting ones cost a thread each."""


class ShardActor(Shard):
    """A shard that also says where it is."""

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()

    def node(self) -> str:
        """The node that it runs on."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        return node


class Fleet(NamedTuple):
    """How shards are held: how many ``replicas`` there are of each, and the ``threads`` of each replica."""

    replicas: int = 1
    threads: int = 1


def start_shards(ray: Any, folder: Path, shards: int, fleet: Fleet, patience: Patience) -> ShardCalls:
    """Start the replicas of all shards of an index, those of one shard on different nodes where there are
    enough, and wait for none of them.

    A replica whose process or node dies is started again by Ray, on that node or another, as often as it
    takes. All end with the program that started them.
    """
    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
    actor = ray.remote(
        num_cpus=0,
        memory=LITTLE_MEMORY,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=CONCURRENCY,
        runtime_env={"env_vars": {"OMP_WAIT_POLICY": "PASSIVE"}},
    )(ShardActor)
    return ShardCalls(
        [
            [
                actor.options(scheduling_strategy=_on(nodes, shard + replica)).remote(
                    str(folder), shard, shards, fleet.threads
                )
                for replica in range(fleet.replicas)
            ]
            for shard in range(shards)
        ],
        patience,
    )


def stop_shards(ray: Any, replicas: Sequence[Sequence[Any]]) -> None:
    """End all replicas."""
    for actor in (actor for shard in replicas for actor in shard):
        ray.kill(actor, no_restart=True)


def _on(nodes: Sequence[str], number: int) -> Any:
    """One node after the other, or any other one where it is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True)
