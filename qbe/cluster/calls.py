"""Requests to the shards of a cluster: to a replica of each, and to another where it fails or is slow."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qbe.cluster.ray_runtime import ClusterError

RETRY_SECONDS = 0.25
"""Between two requests to a shard all of whose replicas have failed, and may be restarting."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for shards: ``deadline`` seconds for all answers to a request, ``hedge`` seconds for
    a replica until another one is asked too (None: never). With ``partial`` a shard without a living replica
    is not waited for.
    """

    deadline: float = 60.0
    hedge: float | None = None
    partial: bool = False


class ShardsLostError(ClusterError):
    """Shards did not answer; ``shards`` are their numbers, from 0."""

    def __init__(self, message: str, shards: frozenset[int]) -> None:
        super().__init__(message)
        self.shards = shards


@dataclass(slots=True)
class _PendingShard:
    """A shard that has not answered yet: its requests under way, by reference, and which replicas failed."""

    order: Sequence[int]
    next_hedge: float
    under_way: dict[Any, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    retry_at: float | None = None

    def next_replica(self) -> int | None:
        """A replica that is not asked at the moment and has not failed."""
        busy = set(self.under_way.values())
        return next((each for each in self.order if each not in busy and each not in self.failed), None)


class ShardCalls:
    """The shards of a cluster, each with its replicas, which are Ray actors of
    `qbe.cluster.index.ShardActor`. Several threads may use it.
    """

    def __init__(self, replicas: Sequence[Sequence[Any]], patience: Patience) -> None:
        """``replicas`` are the actors of each shard."""
        self.replicas, self.patience = replicas, patience
        self._turn = itertools.count()

    def __len__(self) -> int:
        return len(self.replicas)

    def to_all(self, without: Iterable[int], method: str, *arguments: Any) -> dict[int, Any]:
        """Ask all shards but some the same; answers by number."""
        left_out = set(without)
        return self.to_each(method, {shard: arguments for shard in range(len(self)) if shard not in left_out})

    def to_each(self, method: str, requests: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Ask shards, each with its own arguments; answers by number.

        A replica that died is replaced by another, or waited for where there is none: Ray starts it again.
        Raises ShardsLostError for shards that do not answer in time, or with ``partial`` that have no living
        replica; what a shard raises itself is raised here.
        """
        import ray

        started, turn = time.monotonic(), next(self._turn)
        deadline = started + self.patience.deadline
        answers: dict[int, Any] = {}
        pending = {shard: self._pending(shard, turn, started) for shard in requests}
        for shard, state in pending.items():
            self._ask(shard, state, method, requests[shard])
        while pending:
            now = time.monotonic()
            if now >= deadline:
                raise _lost(pending, f"answers within {self.patience.deadline:g} s")
            under_way = [reference for state in pending.values() for reference in state.under_way]
            timeout = max(0.0, self._next_event(pending, deadline) - now)
            if under_way:
                ready, _ = ray.wait(under_way, num_returns=len(under_way), timeout=timeout)
            else:
                time.sleep(timeout)
                ready = []
            for reference in ready:
                self._take(reference, pending, answers)
            self._ask_again(pending, method, requests)
        return answers

    def _pending(self, shard: int, turn: int, now: float) -> _PendingShard:
        count = len(self.replicas[shard])
        order = [(turn + place) % count for place in range(count)]
        return _PendingShard(order, now + (self.patience.hedge or float("inf")))

    def _ask(self, shard: int, state: _PendingShard, method: str, arguments: Sequence[Any]) -> None:
        replica = state.next_replica()
        if replica is None:
            return
        actor = self.replicas[shard][replica]
        state.under_way[getattr(actor, method).remote(*arguments)] = replica

    def _take(self, reference: Any, pending: dict[int, _PendingShard], answers: dict[int, Any]) -> None:
        """The answer of a request that ended."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        shard = next((shard for shard, state in pending.items() if reference in state.under_way), None)
        if shard is None:  # another replica was quicker
            return
        state = pending[shard]
        replica = state.under_way.pop(reference)
        try:
            answers[shard] = ray.get(reference)
        except RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, Exception) else error from None
        except RayError:
            state.failed.add(replica)
            return
        del pending[shard]

    def _ask_again(
        self, pending: Mapping[int, _PendingShard], method: str, requests: Mapping[int, Sequence[Any]]
    ) -> None:
        """Ask another replica where one failed or is slow, and all of them again where all failed."""
        now = time.monotonic()
        dead = {}
        for shard, state in pending.items():
            if state.under_way and now < state.next_hedge:
                continue
            if state.under_way:
                state.next_hedge = now + (self.patience.hedge or float("inf"))
                self._ask(shard, state, method, requests[shard])
                continue
            if state.next_replica() is not None:
                self._ask(shard, state, method, requests[shard])
                continue
            if self.patience.partial:
                dead[shard] = state
            elif state.retry_at is None:
                state.retry_at = now + RETRY_SECONDS
            elif now >= state.retry_at:
                state.retry_at = None
                state.failed.clear()
                self._ask(shard, state, method, requests[shard])
        if dead:
            raise _lost(dead, "a living replica")

    def _next_event(self, pending: Mapping[int, _PendingShard], deadline: float) -> float:
        times = [deadline]
        for state in pending.values():
            if state.retry_at is not None:
                times.append(state.retry_at)
            if state.under_way:
                times.append(state.next_hedge)
            # An answer that fails early must be noticed while others are still waited for.
        return min([*times, time.monotonic() + RETRY_SECONDS])


def _lost(pending: Mapping[int, _PendingShard], expected: str) -> ShardsLostError:
    numbers = ", ".join(str(shard + 1) for shard in sorted(pending))
    return ShardsLostError(
        f"expected {expected} of shard {numbers}, found none; wait until its node is back, raise "
        "`deadline`, or take answers without it with `partial`",
        frozenset(pending),
    )
