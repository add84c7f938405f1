"""An index whose vectors and postings are held by the shards of a cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qbe.cluster.actors import Fleet, start_shards, stop_shards
from qbe.cluster.calls import Patience, ShardCalls, ShardsLostError
from qbe.cluster.placement import placed, shard_count
from qbe.cluster.ray_runtime import connected
from qbe.cluster.reranker import ClusterReranker
from qbe.cluster.shard import MovedOnError
from qbe.cluster.views import ClusterComparer, ClusterPostings, ClusterSentences, ClusterVectors, Shards
from qbe.errors import UsageError, check_positive
from qbe.index.dense.ann import FaissParams
from qbe.index.dense.faiss_candidates import FaissCandidates
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.index.segments.snapshot import open_snapshot

if TYPE_CHECKING:
    from qbe.index.dense.contracts import CandidateSource, Comparer, VectorStore
    from qbe.index.segments.lucene import Postings

T = TypeVar("T")

ATTEMPTS = 8
"""How often a search is carried out anew because the index moved on, or lost shards meanwhile."""

ABSENT_SECONDS = 5.0
"""How long a shard that was lost is not asked again, where answers may be partial."""

log = logging.getLogger(__name__)


class ClusterReader(IndexReader):
    """One commit of an index: papers and labels are read here, from the folder that all nodes share; vectors
    and postings where the shards are.
    """

    def __init__(
        self, folder: Path, threads: int, calls: ShardCalls, without: frozenset[int] = frozenset()
    ) -> None:
        """``without`` are the shards that are not asked."""
        super().__init__(folder, threads)
        held = placed(self._snapshot.segments, len(calls))
        self.shards = Shards(calls, self.generation, held, without)

    @property
    def vector_store(self) -> VectorStore:
        """See `IndexReader.vector_store`."""
        return self._open_once(
            "vector store", lambda: ClusterVectors(self.shards, self.layout.starts, self.similarity)
        )

    @property
    def comparer(self) -> Comparer:
        """See `IndexReader.comparer`."""
        return self._open_once("comparer", lambda: ClusterComparer(self.shards, self.layout.starts))

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

    @property
    def lucene(self) -> Postings:
        """See `IndexReader.lucene`; it brings its own search (`qbe.search.contracts.HasTextSearch`)."""
        self.require_postings()

        def open_postings() -> Postings:
            postings: Any = ClusterPostings(self.shards, len(self))
            return postings  # type: ignore[no-any-return]

        return self._open_once("lucene", open_postings)


class ClusterIndex(Index):
    """An index folder searched on a cluster; made by `open_index`.

    It answers as an `qbe.index.index.Index` does, to the last digit, whatever shards it has. A search during
    which the index moved on is carried out anew, so that no answer mixes two commits. With
    ``Patience.partial`` a search goes without the shards that no replica answers for, and `missing` says
    which these are.
    """

    def __init__(
        self,
        folder: str | Path,
        calls: ShardCalls,
        *,
        encoder: str | None = None,
        tagger: str | None = None,
        threads: int | None = None,
    ) -> None:
        """``calls`` reach the shards; the other parameters and errors are those of `Index`."""
        self._calls = calls
        self._absent: dict[int, float] = {}
        self._without: frozenset[int] = frozenset()
        self._said = self._without
        self._at_close = ExitStack()
        super().__init__(folder, encoder=encoder, tagger=tagger, threads=threads)

    def at_close(self, stack: ExitStack) -> None:
        """Have `close` also close what is on a stack."""
        self._at_close = stack

    def close(self) -> None:
        """Stop reading, and end the shards."""
        super().close()
        self._at_close.close()

    def open_reranker(self, **parameters: Any) -> ClusterReranker:
        """See `qbe.search.contracts.HasRerankers`."""
        return ClusterReranker(self._calls, parameters)

    @property
    def missing(self) -> tuple[str, ...]:
        """The shards that searches go without at the moment."""
        return tuple(f"{shard + 1} of {len(self._calls)}" for shard in sorted(self._without))

    def attempt(self, search: Callable[[], T]) -> T:
        """Carry out a search; again, where the index moved on or shards were lost meanwhile."""
        for remaining in reversed(range(ATTEMPTS)):
            self._try_absent()
            try:
                result = search()
            except MovedOnError:
                if not remaining:
                    raise
                self.refresh()
            except ShardsLostError as error:
                if not (self._calls.patience.partial and remaining):
                    raise
                self._leave_out(error.shards)
            else:
                self._say_missing()
                return result
        raise AssertionError("the last attempt returns or raises")

    def _open_reader(self) -> IndexReader:
        return ClusterReader(self.folder, self.threads, self._calls, self._without)

    def _say_missing(self) -> None:
        """Log which shards answers go without, once for each change."""
        if self._without != self._said:
            if self._without:
                log.warning("answered without shard %s", ", ".join(self.missing))
            else:
                log.warning("all shards answer again")
            self._said = self._without

    def _try_absent(self) -> None:
        """Have the next search ask shards again that were lost long enough ago."""
        now = time.monotonic()
        for shard in [shard for shard, until in list(self._absent.items()) if now >= until]:
            self._absent.pop(shard, None)
        self._set_without(frozenset(self._absent))

    def _leave_out(self, shards: frozenset[int]) -> None:
        until = time.monotonic() + ABSENT_SECONDS
        self._absent.update(dict.fromkeys(shards, until))
        if len(self._absent) == len(self._calls):
            raise ShardsLostError("expected at least one shard, found none; start a node", shards)

    def _set_without(self, without: frozenset[int]) -> None:
        """Read without other shards than before."""
        if without == self._without:
            return
        with self._refreshing, self._lock:
            self._without = without
            if self._reader is not None:
                reader, self._reader = self._reader, self._open_reader()
                reader.release()


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
        calls = start_shards(ray, folder, shards, fleet, patience)
        stack.callback(stop_shards, ray, calls.replicas)
        index = ClusterIndex(folder, calls, encoder=encoder, tagger=tagger, threads=threads)
        index.at_close(stack.pop_all())
        return index
