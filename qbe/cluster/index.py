"""An index whose vectors and postings are held by shards: Ray actors on the nodes of a cluster."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from qbe.cluster.calls import Patience, ShardCalls, ShardsLostError
from qbe.cluster.placement import placed, shard_count
from qbe.cluster.ray_runtime import connected
from qbe.cluster.reranker import ClusterReranker
from qbe.cluster.shard import MovedOnError, Shard
from qbe.cluster.views import ClusterSentences, ClusterText, ClusterVectors, Shards
from qbe.errors import UsageError, check_positive
from qbe.index.dense.ann import FaissParams
from qbe.index.dense.faiss_candidates import FaissCandidates
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.index.snapshot import open_snapshot

if TYPE_CHECKING:
    from qbe.index.dense.vectors import CandidateSource, VectorStore
    from qbe.index.text_search import TextSearch
    from qbe.parallel import Workers

T = TypeVar("T")

ATTEMPTS = 8
"""How often a search is carried out again because the index moved on, or lost shards meanwhile."""

ABSENT_SECONDS = 5.0
"""How long a lost shard is not asked again, where answers may be partial."""

ACTOR_BYTES = 2**20
"""Memory that an actor asks for. Ray places one that asks for nothing on any node, whatever it is told; one
that asks for a share of a processor would keep tasks that want a whole one from its node.
"""

CONCURRENCY = 16
"""Requests that a replica works on at a time; waiting ones cost a thread each."""

log = logging.getLogger(__name__)


class Fleet(NamedTuple):
    """How shards are held: the number of ``replicas`` of each, and of ``threads`` of each replica."""

    replicas: int = 1
    threads: int = 1


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


class ClusterReader(IndexReader):
    """One commit of an index: papers and labels are read here, from the folder that all nodes share; vectors
    and postings where the shards are.
    """

    def __init__(
        self, folder: Path, threads: int, calls: ShardCalls, absent: frozenset[int] = frozenset()
    ) -> None:
        """``absent`` are the shards that are not asked."""
        super().__init__(folder, threads)
        self.shards = Shards(calls, self.generation, placed(self._snapshot.segments, len(calls)), absent)

    @property
    def notes(self) -> tuple[str, ...]:
        """The shards that answers go without."""
        numbers = ", ".join(f"{shard + 1} of {len(self.shards.held)}" for shard in sorted(self.shards.absent))
        return (f"answered without shard {numbers}, which cannot be reached",) if numbers else ()

    @property
    def vector_store(self) -> VectorStore:
        """See `IndexReader.vector_store`."""
        return self._open_once(
            "vector store", lambda: ClusterVectors(self.shards, self.layout.starts, self.similarity)
        )

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        """See `IndexReader.candidate_source`."""
        self.require_vectors()
        params = [FaissParams.read(segment.manifest.dense or {}) for segment in self._snapshot.segments]
        if nprobe is not None and (nprobe < 1 or not any(each.nlist is not None for each in params)):
            raise UsageError(
                f"expected `nprobe` of at least 1 for an index with lists, found {nprobe}; drop it"
            )
        least = max(each.min_candidates for each in params)

        def open_source() -> CandidateSource:
            return FaissCandidates(ClusterSentences(self.shards, least, nprobe), self.layout.starts)

        return self._open_once(("candidates", nprobe), open_source)

    def text_search(self) -> TextSearch:
        """See `IndexReader.text_search`."""
        self.require_postings()
        return self._open_once("text search", lambda: ClusterText(self.shards, self.papers.ids, len(self)))


class ClusterIndex(Index):
    """An index folder searched on a cluster; made by `open_index`.

    It answers as an `qbe.index.index.Index` does, to the last digit, whatever shards it has. A search during
    which the index moved on is carried out again, so that no answer mixes two commits. With
    ``Patience.partial`` a search goes without the shards of which no replica answers, and `notes` name them.
    """

    def __init__(
        self,
        folder: str | Path,
        calls: ShardCalls,
        resources: ExitStack,
        *,
        encoder: str | None = None,
        tagger: str | None = None,
        threads: int | None = None,
    ) -> None:
        """``calls`` reach the shards; ``resources`` are closed with the index. The other parameters and
        errors are those of `Index`.
        """
        self._calls, self._resources = calls, resources
        self._absent_until: dict[int, float] = {}
        self._absent: frozenset[int] = frozenset()
        self._logged = self._absent
        super().__init__(folder, encoder=encoder, tagger=tagger, threads=threads)

    def close(self) -> None:
        """Stop reading, and end the shards."""
        super().close()
        self._resources.close()

    def open_reranker(self, workers: Workers | None = None, **parameters: Any) -> ClusterReranker:  # noqa: ARG002
        """A cross-encoder that the shards' processes share the work of; parameters and errors are those of
        `qbe.rerank.open.open_reranker`, whose ``workers`` are not needed here.
        """
        return ClusterReranker(self._calls, parameters)

    def read(self, function: Callable[[IndexReader], T]) -> T:
        """See `Index.read`; the function is called again where the index moved on, or shards were lost."""
        for remaining in reversed(range(ATTEMPTS)):
            self._ask_again()
            try:
                result = super().read(function)
            except MovedOnError:
                if not remaining:
                    raise
                self.refresh()
            except ShardsLostError as error:
                if not (self._calls.patience.partial and remaining):
                    raise
                self._leave_out(error.shards)
            else:
                self._log_absent()
                return result
        raise AssertionError("the last attempt returns or raises")

    def _open_reader(self) -> IndexReader:
        return ClusterReader(self.folder, self.threads, self._calls, self._absent)

    def _log_absent(self) -> None:
        """Log which shards answers go without, once for each change."""
        absent = self._absent
        if absent != self._logged:
            self._logged = absent
            log.warning("%s", ", ".join(self.notes) or "all shards answer again")

    def _ask_again(self) -> None:
        """Have the next search ask shards again that were lost long enough ago."""
        now = time.monotonic()
        self._absent_until = {shard: until for shard, until in self._absent_until.items() if now < until}
        absent = frozenset(self._absent_until)
        if absent == self._absent:
            return
        with self._refreshing, self._lock:
            self._absent = absent
            if self._reader is not None:
                reader, self._reader = self._reader, self._open_reader()
                reader.release()

    def _leave_out(self, shards: frozenset[int]) -> None:
        until = time.monotonic() + ABSENT_SECONDS
        self._absent_until = {**self._absent_until, **dict.fromkeys(shards, until)}
        if len(self._absent_until) == len(self._calls):
            raise ShardsLostError("expected at least one shard, found none; start a node", shards)


def open_index(
    folder: str | Path,
    cluster: str,
    *,
    fleet: Fleet = Fleet(),  # noqa: B008
    patience: Patience = Patience(),  # noqa: B008
    encoder: str | None = None,
    tagger: str | None = None,
    threads: int | None = None,
) -> ClusterIndex:
    """Open an index on a cluster: one shard for each of its larger segments, held by processes that end when
    the index is closed.

    ``cluster`` is ``local`` (one of this machine), ``auto``, or the address of one; its nodes must see the
    folder under the same path. The other parameters are those of `qbe.index.opening.open_index`. Raises what
    that does, MissingDependencyError without Ray, and ClusterError where the cluster cannot be reached.
    """
    check_positive("replicas", fleet.replicas)
    check_positive("deadline", patience.deadline)
    folder = Path(folder).resolve()
    snapshot = open_snapshot(folder)
    shards = shard_count(snapshot.segments)
    snapshot.close()
    with ExitStack() as stack:
        ray = stack.enter_context(connected(cluster, threads))
        replicas = _start_shards(ray, folder, shards, fleet)
        stack.callback(_stop_shards, ray, replicas)
        calls = ShardCalls(replicas, patience)
        resources = ExitStack()
        index = ClusterIndex(folder, calls, resources, encoder=encoder, tagger=tagger, threads=threads)
        resources.push(stack.pop_all())
        return index


def _start_shards(ray: Any, folder: Path, shards: int, fleet: Fleet) -> list[list[Any]]:
    """Start the replicas of all shards of an index, those of one shard on different nodes where there are
    enough, and wait for none of them.

    A replica whose process or node dies is started again by Ray, on that node or another, as often as it
    takes. All end with the program that started them.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
    actor = ray.remote(
        num_cpus=0,
        memory=ACTOR_BYTES,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=CONCURRENCY,
        runtime_env={"env_vars": {"OMP_WAIT_POLICY": "PASSIVE"}},
    )(ShardActor)

    def start(shard: int, replica: int) -> Any:
        node = nodes[(shard + replica) % len(nodes)]  # or any other one where it is gone
        place = NodeAffinitySchedulingStrategy(node, soft=True)
        return actor.options(scheduling_strategy=place).remote(str(folder), shard, shards, fleet.threads)

    return [[start(shard, replica) for replica in range(fleet.replicas)] for shard in range(shards)]


def _stop_shards(ray: Any, replicas: Sequence[Sequence[Any]]) -> None:
    for actor in (actor for shard in replicas for actor in shard):
        ray.kill(actor, no_restart=True)
