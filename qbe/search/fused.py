"""The fused first stage: BM25, sentence vectors, sentence vectors of the facet, whole-paper vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.dense.scoring import Ints
from qbe.index.index import Index
from qbe.parallel import ordered_map
from qbe.query import Query
from qbe.search.bm25 import BM25Searcher
from qbe.search.dense import DenseSearcher, QueryVectors, best_hits
from qbe.search.fusion import EQUAL_WEIGHTS, FUSIONS
from qbe.types import Hit, Pools

Floats = NDArray[np.float64]


class Candidates(NamedTuple):
    """Candidates of a query: rows, ascending, their ids, and the BM25 scores by id that are known."""

    rows: Ints
    paper_ids: list[str]
    lexical: dict[str, float]


class FusedSearcher:
    """Gathers the candidates of BM25 and of the sentence vectors, scores each in every way, and fuses.

    Every component is computed for every candidate, so that none is punished for the list it missed.
    """

    def __init__(
        self,
        index: Index,
        bm25: BM25Searcher,
        dense: DenseSearcher,
        fusion: str = "weighted",
        weights: Mapping[str, float] = EQUAL_WEIGHTS,
        depth: int = 1000,
    ) -> None:
        """``fusion`` is one of FUSIONS; ``weights`` names components ``bm25``, ``sentences`` (all of a
        candidate), ``facet`` (its sentences of the query's facet) and ``whole``; ``depth`` is the number
        of papers each side brings. Raises UsageError for other names and for weights that are all 0.
        """
        if fusion not in FUSIONS:
            raise UsageError(f"expected a fusion of {', '.join(FUSIONS)}, found {fusion!r}")
        unknown = set(weights) - set(EQUAL_WEIGHTS)
        sound = all(math.isfinite(weight) and weight >= 0 for weight in weights.values())
        if unknown or not any(weights.values()) or not sound:
            raise UsageError(
                f"expected finite weights of 0 or more, not all 0, of {', '.join(EQUAL_WEIGHTS)}, "
                f"found {dict(weights)}"
            )
        self._index, self._bm25, self._dense = index, bm25, dense
        self._fuse, self._weights, self._depth = FUSIONS[fusion], weights, depth

    def batch_search(
        self, queries: Sequence[Query], hits: int, pools: Pools, *, explain: bool = False
    ) -> list[list[Hit]]:
        """The best hits of each query, ties by id, out of its pool or of both sides' candidates.

        Raises UsageError where only the component ``facet`` has a weight and a query has no facet.
        """
        facet_alone = not any(weight for name, weight in self._weights.items() if name != "facet")
        if facet_alone and any(query.facet is None for query in queries):
            raise UsageError("expected a facet, since only the component facet has a weight, found none")
        vectors = self._dense.vectors_many(queries)
        gathered = self._gather(queries, vectors, hits, pools)
        self._complete(queries, gathered)

        def best(number: int) -> list[Hit]:
            rows, paper_ids, lexical = gathered[number]
            found = np.array([lexical[paper_id] for paper_id in paper_ids])
            components = self._components(queries[number], vectors[number], rows, found)
            fused = self._fuse(components, self._weights).astype(np.float32)
            best = best_hits(paper_ids, fused, hits)
            return _explained(best, paper_ids, components) if explain else best

        return list(ordered_map(best, range(len(queries)), min(len(queries), self._index.threads)))

    def _gather(
        self, queries: Sequence[Query], vectors: Sequence[QueryVectors], hits: int, pools: Pools
    ) -> list[Candidates]:
        """The candidates of each query, with the BM25 scores that finding them brought."""
        # One more than asked for: the query paper is among them, and left out in the end.
        depth = min(max(hits, self._depth + 1), len(self._index))
        whole = [number for number, pool in enumerate(pools) if pool is None]
        near = iter(self._dense.search_rows([vectors[number] for number in whole], depth))
        found = iter(
            self._bm25.batch_search([queries[number] for number in whole], depth, [None] * len(whole))
        )
        gathered = []
        for pool in pools:
            lexical: dict[str, float] = {}
            if pool is None:
                lexical = {hit.paper_id: hit.score for hit in next(found)}
                rows = np.union1d(next(near), self._dense.rows(list(lexical)))
            else:
                rows = np.unique(self._dense.rows(pool))
            gathered.append(Candidates(rows, [self._index.papers.ids[row] for row in rows], lexical))
        return gathered

    def _complete(self, queries: Sequence[Query], gathered: Sequence[Candidates]) -> None:
        """Add the BM25 scores of those candidates that have none yet."""
        missing = [
            [paper_id for paper_id in one.paper_ids if paper_id not in one.lexical] for one in gathered
        ]
        lacking = [number for number, paper_ids in enumerate(missing) if paper_ids]
        pools = [missing[number] for number in lacking]
        most = max(map(len, pools), default=0)
        found = self._bm25.batch_search([queries[number] for number in lacking], most, pools)
        for number, hits in zip(lacking, found, strict=True):
            gathered[number].lexical.update((hit.paper_id, hit.score) for hit in hits)

    def _components(
        self, query: Query, vectors: QueryVectors, rows: Ints, lexical: Floats
    ) -> dict[str, Floats]:
        """The scores (papers,) of candidates by component, ``facet`` only where the query has one."""
        facets = [None] if query.facet is None else [None, query.facet]
        scores: list[NDArray[Any]] = [
            lexical,
            self._dense.whole_scores(vectors, rows),
            *self._dense.scores_within(vectors, rows, facets),
        ]
        names = ("bm25", "whole", "sentences", "facet")
        return {name: score.astype(np.float64) for name, score in zip(names, scores, strict=False)}


def _explained(hits: list[Hit], paper_ids: list[str], components: Mapping[str, Floats]) -> list[Hit]:
    """Hits with their parts: what each component, as it is before fusion, gave the paper."""
    place = {paper_id: i for i, paper_id in enumerate(paper_ids)}
    return [
        hit._replace(parts={name: float(score[place[hit.paper_id]]) for name, score in components.items()})
        for hit in hits
    ]
