"""What a shard answers: the segments of an index that one process holds, opened and warm.

Rows and positions that go in and out are those of the whole index. Every request names the generation of the
index that it is about, and is answered from that commit or refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qbe.cluster.bm25 import CorpusStatistics, QueryTerm, ShardSearch, statistics_of
from qbe.cluster.placement import ShardRows, placed
from qbe.errors import QbeError
from qbe.index.dense.faiss_segment import FaissSegments, Nearest
from qbe.index.dense.stored import Vectors
from qbe.index.dense.vectors import Floats, MappedVectors
from qbe.index.rows import Rows, starts_of
from qbe.index.snapshot import Snapshot, open_snapshot
from qbe.index.text_search import Ranked, open_postings
from qbe.index.views import PaperStore, open_segments, open_vectors
from qbe.search.rank import Reranker, RerankRequest, RerankScore
from qbe.util.parallel import Closing, Workers

T = TypeVar("T")

KEPT_GENERATIONS = 2
"""Commits that a shard keeps open: searches of the former one may be under way."""

KEPT_SELECTIONS = 16
"""Selections of papers that a shard keeps in the form that its searches take."""


class MovedOnError(QbeError):
    """The index has another commit than the one that was asked about."""


class Selected(NamedTuple):
    """Selected papers or sentences of a shard: a ``key`` that no other selection has, and their ``bits``, one
    for each row of the shard, packed.
    """

    key: str
    bits: NDArray[np.uint8]


class _Commit:
    """The segments of a shard as of one commit."""

    def __init__(self, snapshot: Snapshot, shard: int, shards: int, threads: int) -> None:
        self.snapshot, self.readers = snapshot, 0
        held = placed(snapshot.segments, shards)[shard]
        self.segments = [each.segment for each in held]
        self.rows, self.sentences = ShardRows.of_papers(held), ShardRows.of_sentences(held)
        self._first_sentences = [each.first_sentence for each in held]
        self._threads, self._lock = threads, threading.RLock()
        self._made: dict[Hashable, Any] = {}
        self._selections: OrderedDict[Hashable, Any] = OrderedDict()

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """A part of the commit, made when it is first used."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            part: T = self._made[key]
            return part

    def selection(self, key: Hashable, make: Callable[[], T]) -> T:
        """A selection as searches take it, made when it is first used; some are kept."""
        with self._lock:
            if key not in self._selections:
                self._selections[key] = make()
                if len(self._selections) > KEPT_SELECTIONS:
                    self._selections.popitem(last=False)
            selection: T = self._selections[key]
            return selection

    def faiss(self, nprobe: int | None) -> FaissSegments:
        def make() -> FaissSegments:
            return FaissSegments(open_segments(self.segments, self._threads, nprobe), self._first_sentences)

        return self.once(("faiss", nprobe), make)

    @property
    def vectors(self) -> MappedVectors:
        def make() -> MappedVectors:
            sentences, whole = open_vectors(self.segments)
            counts = [np.diff(store.layout().starts) for store in self.papers.segments]
            starts = starts_of(np.concatenate(counts).tolist())
            return MappedVectors(sentences, whole, starts, self.segments[0].manifest.similarity)

        return self.once("vectors", make)

    @property
    def papers(self) -> PaperStore:
        return self.once("papers", lambda: PaperStore(self.segments))

    def postings(self) -> Any:
        lucene = self.segments[0].manifest.lucene or {}
        return self.once("postings", lambda: open_postings(self.segments, self.papers, lucene))

    def text(self, corpus: CorpusStatistics) -> ShardSearch:
        return self.once("text", lambda: ShardSearch(self.postings(), self.papers.ids, corpus))

    def close(self) -> None:
        with self._lock:
            postings = self._made.pop("postings", None)
        if postings is not None:
            postings.close()
        self.snapshot.close()


class Shard(Closing):
    """Shard number ``shard``, from 0, of an index whose segments are held by so many ``shards``.

    >>> with Shard(index.folder, shard=0, shards=1) as only:
    ...     (nearest,) = only.nearest(0, index.sentence_vectors[5:6].astype(np.float32), 1)
    >>> nearest.positions.tolist()
    [[5]]
    """

    def __init__(self, folder: str | Path, shard: int, shards: int, threads: int = 1) -> None:
        self._folder, self._shard, self._shards, self._threads = Path(folder), shard, shards, threads
        self._lock = threading.Lock()
        self._commits: OrderedDict[int, _Commit] = OrderedDict()
        self._workers = Workers(threads)
        self._rerankers: dict[Hashable, Reranker] = {}

    def close(self) -> None:
        """Close all commits."""
        with self._lock:
            for commit in self._commits.values():
                commit.close()
            self._commits.clear()
        self._workers.close()

    def nearest(
        self,
        generation: int,
        queries: Floats,
        count: int,
        among: Selected | None = None,
        breadth: int = 1,
        nprobe: int | None = None,
    ) -> list[Nearest]:
        """See `qbe.index.dense.faiss_segment.FaissSegments.search`; ``among`` are sentences."""
        with self._at(generation) as commit:
            faiss = commit.faiss(nprobe)
            selection = None
            if among is not None:
                bits = _unpacked(among, len(commit.sentences))
                selection = commit.selection(("faiss", among.key), lambda: faiss.select(bits))
            return faiss.search(queries, count, selection, breadth)

    def gather(self, generation: int, rows: Rows) -> Vectors:
        """The vectors of the sentences of papers (n,), paper after paper, as stored."""
        with self._at(generation) as commit:
            return commit.vectors.gather(commit.rows.local(rows)).vectors

    def whole(self, generation: int, rows: Rows) -> Vectors:
        """The vectors of whole papers (n,), as stored."""
        with self._at(generation) as commit:
            return commit.vectors.whole(commit.rows.local(rows))

    def compare(
        self, generation: int, rows: Rows, sentences: Floats, whole: Floats | None
    ) -> tuple[Floats, Floats | None]:
        """Similarities (queries, sentences) and (papers,) of papers (n,); see
        `qbe.index.dense.vectors.VectorStore.compare`.
        """
        with self._at(generation) as commit:
            compared = commit.vectors.compare(sentences, commit.rows.local(rows), whole)
            return compared.similarities, compared.whole

    def statistics(self, generation: int) -> CorpusStatistics:
        """What the shard adds to the statistics of the corpus."""
        with self._at(generation) as commit:
            return statistics_of(commit.postings())

    def terms(self, generation: int, corpus: CorpusStatistics, text: str) -> list[QueryTerm]:
        """The terms of a text with their document frequencies in the shard."""
        with self._at(generation) as commit:
            return commit.text(corpus).terms(text)

    def best(
        self,
        generation: int,
        corpus: CorpusStatistics,
        terms: Sequence[QueryTerm],
        frequencies: Mapping[str, int],
        k: int,
        pool: Rows | None = None,
        among: Selected | None = None,
    ) -> Ranked:
        """The shard's best papers for terms with these frequencies in the corpus; see
        `qbe.cluster.bm25.ShardSearch.best_of_terms`. ``among`` are papers.
        """
        with self._at(generation) as commit:
            search, filtering = commit.text(corpus), None
            if among is not None:
                rows = np.flatnonzero(_unpacked(among, len(commit.rows)))
                filtering = commit.selection(("text", among.key), lambda: search.filtering(rows))
            local = None if pool is None else commit.rows.local(pool)
            rows, scores = search.best_of_terms(terms, frequencies, k, local, filtering)
            return Ranked(commit.rows.whole(rows), scores)

    def rerank(
        self, parameters: Mapping[str, Any], requests: Sequence[RerankRequest]
    ) -> list[list[RerankScore]]:
        """Scores of a reranker opened with these parameters; of any papers, not only the shard's."""
        return self._reranker(parameters).batch_score(requests)

    def about_reranker(self, parameters: Mapping[str, Any]) -> tuple[str, bool, bool]:
        """Its name, and whether it needs vectors."""
        reranker = self._reranker(parameters)
        return reranker.name, reranker.needs_vectors, reranker.takes_whole_abstracts

    def _reranker(self, parameters: Mapping[str, Any]) -> Reranker:
        from qbe.search.rerankers import open_reranker

        key = tuple(sorted(parameters.items()))
        with self._lock:
            if key not in self._rerankers:
                self._rerankers[key] = open_reranker(workers=self._workers, **parameters)
            return self._rerankers[key]

    @contextlib.contextmanager
    def _at(self, generation: int) -> Iterator[_Commit]:
        """A commit, opened when it is first asked for and still the newest; of former ones those are closed
        that no request reads any more.
        """
        with self._lock:
            if generation not in self._commits:
                self._open(generation)
            commit = self._commits[generation]
            commit.readers += 1
        try:
            yield commit
        finally:
            with self._lock:
                commit.readers -= 1
                if not commit.readers and commit not in self._commits.values():
                    commit.close()

    def _open(self, generation: int) -> None:
        snapshot = open_snapshot(self._folder)
        if snapshot.generation != generation:
            snapshot.close()
            raise MovedOnError(
                f"expected generation {generation} of {self._folder}, found {snapshot.generation}; search "
                "again"
            )
        self._commits[generation] = _Commit(snapshot, self._shard, self._shards, self._threads)
        if len(self._commits) > KEPT_GENERATIONS:
            _, former = self._commits.popitem(last=False)
            if not former.readers:
                former.close()


def _unpacked(selected: Selected, count: int) -> NDArray[np.bool_]:
    return np.unpackbits(selected.bits, count=count).view(np.bool_)
