"""An index whose vectors and postings are held by shards: Ray actors on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from qbe.cluster.calls import DEADLINE, ShardCalls
from qbe.cluster.placement import placed, shard_count
from qbe.cluster.ray_runtime import connected
from qbe.cluster.shard import MovedOnError, Shard
from qbe.cluster.views import ClusterReranker, ClusterSentences, ClusterText, ClusterVectors, Shards
from qbe.errors import UsageError, check_positive
from qbe.index.dense.ann import FaissParams
from qbe.index.dense.faiss_candidates import FaissCandidates
from qbe.index.index import Index
from qbe.index.packs.pulling import local_folder
from qbe.index.reader import IndexReader
from qbe.index.snapshot import open_snapshot

if TYPE_CHECKING:
    from qbe.index.dense.vectors import CandidateSource, VectorStore
    from qbe.index.text_search import TextSearch
    from qbe.util.parallel import Workers

T = TypeVar("T")

ATTEMPTS = 8
"""How often a search is carried out again because the index moved on meanwhile."""

ACTOR_BYTES = 2**20
"""Memory that an actor asks for. Ray places one that asks for nothing on any node, whatever it is told; one
that asks for a share of a processor would keep tasks that want a whole one from its node.
"""

CONCURRENCY = 16
"""Requests that a replica works on at a time; waiting ones cost a thread each."""


class Fleet(NamedTuple):
    """How shards are held: the number of ``replicas`` of each, and of ``threads`` of each replica."""

    replicas: int = 1
    threads: int = 1


class ClusterReader(IndexReader):
    """One commit of an index: papers and labels are read here, from the folder that all nodes share; vectors
    and postings where the shards are.
    """

    def __init__(self, folder: Path, threads: int, calls: ShardCalls) -> None:
        super().__init__(folder, threads)
        self.shards = Shards(calls, self.generation, placed(self._snapshot.segments, len(calls)))

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
    which the index moved on is carried out again, so that no answer mixes two commits.
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
        super().__init__(folder, encoder=encoder, tagger=tagger, threads=threads)

    def close(self) -> None:
        """Stop reading, and end the shards."""
        super().close()
        self._resources.close()

    def open_reranker(self, workers: Workers | None = None, **parameters: Any) -> ClusterReranker:  # noqa: ARG002
        """A cross-encoder that the shards' processes share the work of; parameters and errors are those of
        `qbe.search.rerankers.open_reranker`, whose ``workers`` are not needed here.
        """
        return ClusterReranker(self._calls, parameters)

    def read(self, function: Callable[[IndexReader], T]) -> T:
        """See `Index.read`; the function is called again where the index moved on."""
        for _ in range(ATTEMPTS - 1):
            try:
                return super().read(function)
            except MovedOnError:
                self.refresh()
        return super().read(function)

    def _open_reader(self) -> IndexReader:
        return ClusterReader(self.folder, self.threads, self._calls)


def open_index(
    folder: str | Path,
    cluster: str,
    *,
    fleet: Fleet = Fleet(),  # noqa: B008
    deadline: float = DEADLINE,
    encoder: str | None = None,
    tagger: str | None = None,
    threads: int | None = None,
) -> ClusterIndex:
    """Open an index on a cluster: one shard for each of its larger segments, held by processes that end when
    the index is closed.

    ``cluster`` is ``local`` (one of this machine), ``auto``, or the address of one; its nodes must see the
    folder under the same path. Shards are waited for at most ``deadline`` seconds. The other parameters are
    those of `qbe.index.opening.open_index`. Raises what that does, MissingDependencyError without Ray, and
    ClusterError where the cluster cannot be reached.
    """
    check_positive("replicas", fleet.replicas)
    check_positive("deadline", deadline)
    folder = local_folder(folder).resolve()
    snapshot = open_snapshot(folder)
    shards = shard_count(snapshot.segments)
    snapshot.close()
    with ExitStack() as stack:
        ray = stack.enter_context(connected(cluster, threads))
        replicas = _start_shards(ray, folder, shards, fleet)
        stack.callback(_stop_shards, ray, replicas)
        calls = ShardCalls(replicas, deadline)
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
    )(Shard)

    def start(shard: int, replica: int) -> Any:
        node = nodes[(shard + replica) % len(nodes)]  # or any other one where it is gone
        place = NodeAffinitySchedulingStrategy(node, soft=True)
        return actor.options(scheduling_strategy=place).remote(str(folder), shard, shards, fleet.threads)

    return [[start(shard, replica) for replica in range(fleet.replicas)] for shard in range(shards)]


def _stop_shards(ray: Any, replicas: Sequence[Sequence[Any]]) -> None:
    for actor in (actor for shard in replicas for actor in shard):
        ray.kill(actor, no_restart=True)
