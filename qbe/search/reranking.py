"""The second stage: a reranker judges the best papers of the first one anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qbe.errors import ModelError, UsageError
from qbe.query import Query
from qbe.search.contracts import AnySearcher
from qbe.types import Hit, Pools

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.rerank.reranker import Reranker, RerankScore
    from qbe.search.searcher import Searcher

RERANK_DEPTH = 100
"""How many papers of the first stage are reranked."""

RERANK_WEIGHT = 0.5
"""The reranker's share of the score, the rest being the first stage's; chosen on graded pairs."""

MATCHING_WEIGHT = 1.0
"""The same for matchings of sentence vectors: alone, as ASPIRE ranks."""


class RerankingSearcher(AnySearcher):
    """Searches with a first stage and reranks its best papers.

    A reranked paper's score is ``(1 - weight) * z(first) + weight * z(reranker)``, both z-normalized over
    the papers reranked. The other papers follow below them in the first stage's order. Each reranked hit
    carries the pair of sentences that drove its score, where the reranker knows it, and if explained its
    plan of transport, where the reranker has one. A search raises ModelError where a score of the reranker is
    no finite number.
    """

    def __init__(
        self,
        searcher: Searcher,
        index: Index,
        reranker: Reranker,
        depth: int = RERANK_DEPTH,
        weight: float = RERANK_WEIGHT,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Rerank the ``depth`` best papers of ``searcher``, whose text is read from ``index``.

        A ``weight`` of 1 is the reranker alone, of 0 the first stage alone. ``progress`` is called with the
        number of papers just reranked. Raises UsageError for a depth below 1 or a weight outside 0 to 1.
        """
        if depth < 1:
            raise UsageError(f"expected a rerank depth of at least 1, found {depth}")
        if not 0 <= weight <= 1:
            raise UsageError(f"expected a rerank weight from 0 to 1, found {weight:g}")
        self._searcher, self._index, self._reranker = searcher, index, reranker
        self._depth, self._weight, self._progress = depth, weight, progress

    def batch_search(
        self,
        queries: Sequence[Query],
        hits: int = 10,
        pools: Pools | None = None,
        *,
        matches: bool = True,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """What `search` finds for each query and its pool, bit by bit; see `Searcher.batch_search`.

        The reranker gets the candidates of all queries as one stream, each paper read once.
        """
        from qbe.search.searcher import check_hits

        check_hits(hits)
        first = self._searcher.batch_search(
            queries, max(hits, self._depth), pools, matches=False, explain=explain
        )
        if explain:
            first = [[_with_part(hit, "first", hit.score) for hit in found] for found in first]
        reranked = self._rerank(queries, [found[: self._depth] for found in first], explain=explain)
        best = []
        for above, found in zip(reranked, first, strict=True):
            lowest = min((hit.score for hit in above), default=0.0)
            mixed = [*above, *_below(lowest, found[self._depth :])]
            best.append(sorted(mixed, key=lambda hit: (-hit.score, hit.paper_id))[:hits])
        return self._searcher.with_matches_many(queries, best) if matches else best

    def _rerank(
        self, queries: Sequence[Query], found: Sequence[Sequence[Hit]], *, explain: bool
    ) -> list[list[Hit]]:
        """The hits of each query with their final scores, in the order given."""
        paper_ids = dict.fromkeys(hit.paper_id for hits in found for hit in hits)
        papers = {paper_id: self._index.paper(paper_id) for paper_id in paper_ids}
        asked = [
            (query, [papers[hit.paper_id] for hit in hits])
            for query, hits in zip(queries, found, strict=True)
        ]
        judged = self._reranker.batch_score(asked, self._progress)
        return [self._mixed(hits, own, explain=explain) for hits, own in zip(found, judged, strict=True)]

    def _mixed(self, hits: Sequence[Hit], judged: Sequence[RerankScore], *, explain: bool) -> list[Hit]:
        """One query's hits with the scores of both stages mixed."""
        for hit, one in zip(hits, judged, strict=True):
            if not math.isfinite(one.score):
                raise ModelError(
                    f"expected finite scores of the reranker {self._reranker.name}, found {one.score} for "
                    f"paper {hit.paper_id}; choose another --rerank-precision or --reranker"
                )
        scores = interpolate([hit.score for hit in hits], [one.score for one in judged], self._weight)
        return [
            _judged(hit, one, score, explain=explain)
            for hit, one, score in zip(hits, judged, scores, strict=True)
        ]


def interpolate(first: Sequence[float], reranker: Sequence[float], weight: float) -> list[float]:
    """``(1 - weight) * z(first) + weight * z(reranker)`` of papers scored by both, in the order given."""
    import numpy as np

    from qbe.search.fusion import z_normalize

    mixed = (1 - weight) * z_normalize(np.array(first)) + weight * z_normalize(np.array(reranker))
    scores: list[float] = mixed.tolist()
    return scores


def _judged(hit: Hit, judged: RerankScore, score: float, *, explain: bool) -> Hit:
    if explain:
        hit = _with_part(hit, "reranker", judged.score)._replace(plan=judged.plan)
    return hit._replace(score=score, driven_by=judged.match)


def _with_part(hit: Hit, name: str, score: float) -> Hit:
    return hit._replace(parts={**(hit.parts or {}), name: score})


def _below(lowest: float, rest: Sequence[Hit]) -> list[Hit]:
    """The papers that were not reranked, with their scores moved as one: the best of them is 1 below."""
    return [hit._replace(score=lowest - 1 - (rest[0].score - hit.score)) for hit in rest]
