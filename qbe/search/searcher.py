"""The searcher that users call: one first stage over one index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qbe.encode.selection import selected_positions
from qbe.errors import PaperNotFoundError, UsageError
from qbe.index.index import Index
from qbe.parallel import ordered_map
from qbe.query import Query
from qbe.search.contracts import AnySearcher, FirstStage
from qbe.search.fusion import EQUAL_WEIGHTS
from qbe.types import Hit, Pools

if TYPE_CHECKING:
    from qbe.search.dense import DenseSearcher

FIRST_STAGES = ("bm25", "dense", "fused")


class Searcher(AnySearcher):
    """Searches an index for papers like a query's.

    The query paper itself is never among the hits.
    """

    def __init__(
        self,
        index: Index,
        first_stage: str = "fused",
        *,
        bm25_query: str = "title+facet",
        match: str = "mean-max",
        fusion: str = "weighted",
        weights: Mapping[str, float] = EQUAL_WEIGHTS,
        depth: int = 1000,
        nprobe: int | None = None,
    ) -> None:
        """Open a first stage: ``bm25``, ``dense`` or ``fused``; the options belong to its parts.

        Raises UsageError for an unknown name or option, IndexFormatError when the index was built
        without what the stage needs.
        """
        self._index = index
        self._dense = _open_dense(index, first_stage, match, nprobe)
        self._stage = _open(index, first_stage, self._dense, bm25_query, fusion, weights, depth)

    def batch_search(
        self,
        queries: Sequence[Query],
        hits: int = 10,
        pools: Pools | None = None,
        *,
        matches: bool = True,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """What `search` finds for each query and its pool, bit by bit, in less time: the index is asked for
        all queries together, and with several threads their scores are computed side by side.

        All that is found is held in memory: give some dozens of queries at a time. Raises what `search` does,
        and UsageError for another number of pools than queries.
        """
        check_hits(hits)
        pools = checked_pools(queries, pools)
        hits = min(hits, len(self._index))
        asked = [self._asked(query, pool) for query, pool in zip(queries, pools, strict=True)]
        wanted = [number for number, pool in enumerate(asked) if pool is None or pool]
        found = self._stage.batch_search(
            [queries[number] for number in wanted],
            hits + 1,
            [asked[number] for number in wanted],
            explain=explain,
        )
        best: list[list[Hit]] = [[] for _ in queries]
        for number, ranked in zip(wanted, found, strict=True):
            own = queries[number].paper.paper_id
            best[number] = [hit for hit in ranked if hit.paper_id != own][:hits]
        return self.with_matches_many(queries, best) if matches else best

    def _asked(self, query: Query, pool: Sequence[str] | None) -> list[str] | None:
        """A query's pool without the query paper and repetitions; raises for what cannot be searched."""
        selected_positions(query)  # a query without sentences is refused, whatever the stage reads of it
        if pool is None:
            return None
        asked = [paper_id for paper_id in dict.fromkeys(pool) if paper_id != query.paper.paper_id]
        _check_pool(self._index, query, asked)
        return asked

    def with_matches_many(self, queries: Sequence[Query], found: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
        """What `with_matches` makes of each query's hits."""
        pairs = list(zip(queries, found, strict=True))
        if self._dense is not None:
            self._dense.vectors_many([query for query, hits in pairs if hits])
        threads = min(len(pairs), self._index.threads)
        return list(ordered_map(lambda pair: self.with_matches(*pair), pairs, threads))

    def with_matches(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """The hits with their pairs of closest sentences; as they are where the index has no vectors."""
        if self._dense is None or not hits:
            return list(hits)
        pairs = self._dense.matches(query, [hit.paper_id for hit in hits])
        return [hit._replace(matches=pair) for hit, pair in zip(hits, pairs, strict=True)]


def check_hits(hits: int) -> None:
    """Raise UsageError for fewer than 1 hit."""
    if hits < 1:
        raise UsageError(f"expected at least 1 hit, found {hits}")


def checked_pools(queries: Sequence[Query], pools: Pools | None) -> Pools:
    """A pool for each query, None where there are no pools; raises UsageError for another number of them."""
    if pools is None:
        return [None] * len(queries)
    if len(pools) != len(queries):
        raise UsageError(f"expected a pool for each of {len(queries)} queries, found {len(pools)} pools")
    return pools


def _open_dense(index: Index, first_stage: str, match: str, nprobe: int | None) -> DenseSearcher | None:
    """The searcher of the index's vectors; None where it has none, which only bm25 can do without.

    An index without the vectors that a stage needs is refused here, before the virtual machine starts.
    """
    if first_stage not in FIRST_STAGES:
        raise UsageError(f"expected a first stage of {', '.join(FIRST_STAGES)}, found {first_stage!r}")
    if index.manifest.dense is None and first_stage == "bm25":
        return None
    from qbe.search.dense import DenseSearcher

    return DenseSearcher(index, match, nprobe)


def _open(
    index: Index,
    first_stage: str,
    dense: DenseSearcher | None,
    bm25_query: str,
    fusion: str,
    weights: Mapping[str, float],
    depth: int,
) -> FirstStage:
    if first_stage == "dense" and dense is not None:
        return dense
    from qbe.search.bm25 import BM25Searcher

    bm25 = BM25Searcher(index, bm25_query)
    if first_stage == "bm25" or dense is None:
        return bm25
    from qbe.search.fused import FusedSearcher

    return FusedSearcher(index, bm25, dense, fusion, weights, depth)


def _check_pool(index: Index, query: Query, pool: Sequence[str]) -> None:
    missing = [paper_id for paper_id in pool if index.papers.find(paper_id) is None]
    if missing:
        raise PaperNotFoundError(
            f"expected the pool of {query.query_id} to name papers of the index, found {len(missing)} of "
            f"{len(pool)} that it lacks, such as {missing[0]}; "
            "build the index from the collection of the pool"
        )
