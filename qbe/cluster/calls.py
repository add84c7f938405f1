"""Requests to the shards of a cluster: to a replica of each, and to the next one where it died."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from qbe.cluster.ray_runtime import ClusterError, raised_in_task

DEADLINE = 60.0
"""Seconds that are waited for all answers to a request."""

RETRY_SECONDS = 0.25
"""Between two requests to a shard all of whose replicas have failed, and may be restarting."""


class ShardCalls:
    """The shards of a cluster, each with its replicas, which are Ray actors of
    `qbe.cluster.shard.Shard`. Several threads may use it.
    """

    def __init__(self, replicas: Sequence[Sequence[Any]], deadline: float = DEADLINE) -> None:
        """``replicas`` are the actors of each shard."""
        self.replicas, self._deadline = replicas, deadline
        self._turn = itertools.count()

    def __len__(self) -> int:
        return len(self.replicas)

    def to_all(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all shards the same; answers in their order."""
        answers = self.to_each(method, dict.fromkeys(range(len(self)), arguments))
        return [answers[shard] for shard in range(len(self))]

    def to_each(self, method: str, requests: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Ask shards, each with its own arguments; answers by number.

        A replica that died is replaced by another, or waited for where there is none: Ray starts it again.
        Raises ClusterError for shards that do not answer in time; what a shard raises itself is raised here.
        """
        import ray
        from ray.exceptions import RayError, RayTaskError

        turn, deadline = next(self._turn), time.monotonic() + self._deadline
        answers: dict[int, Any] = {}
        failures = Counter[int]()

        def ask(shard: int) -> Any:
            replicas = self.replicas[shard]
            actor = replicas[(turn + failures[shard]) % len(replicas)]
            return getattr(actor, method).remote(*requests[shard])

        pending = {ask(shard): shard for shard in requests}
        while pending:
            # A request that fails early must be noticed while others are still waited for.
            ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=RETRY_SECONDS)
            failed = []
            for reference in ready:
                shard = pending.pop(reference)
                try:
                    answers[shard] = ray.get(reference)
                except RayTaskError as error:
                    raise raised_in_task(error) from None
                except RayError:
                    failures[shard] += 1
                    failed.append(shard)
            if any(failures[shard] % len(self.replicas[shard]) == 0 for shard in failed):
                time.sleep(RETRY_SECONDS)
            pending.update({ask(shard): shard for shard in failed})
            if pending and time.monotonic() >= deadline:
                numbers = ", ".join(str(shard + 1) for shard in sorted(pending.values()))
                raise ClusterError(
                    f"expected answers within {self._deadline:g} s of shard {numbers}, found none; wait "
                    "until its node is back, or raise `deadline`"
                )
        return answers
