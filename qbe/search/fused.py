"""The fused first stage: any named scores of the candidates of any sources, normalized and summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qbe.encode.aspect import EncodedAspect
from qbe.errors import UsageError
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.index.selection import Selection
from qbe.parallel import Workers
from qbe.search.background import BackgroundPenalty
from qbe.search.contracts import Candidates, Rows, Scores, ScoreSource
from qbe.search.fusion import best_hits, weighted_sum
from qbe.search.stages import FUSED_DEPTH
from qbe.types import Hit, Pools


class FusedStage:
    """Gathers the candidates of its sources, scores each candidate by every source, and fuses the scores.

    Every component is computed for every candidate, also where its source did not propose the candidate.

    >>> from qbe.query import Aspect
    >>> from qbe.search.dense import DenseStage
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     dense = DenseStage(reader, Workers())
    ...     stage = FusedStage(reader, Workers(), [dense], {"sentences": 1.0, "whole": 1.0})
    ...     (hits,) = stage.batch_search([query], 3, [["s001", "s051"]], explain=True)
    >>> [hit.score for hit in hits], sorted(hits[0].component_scores)
    ([1.0, -1.0], ['sentences', 'whole'])
    """

    needs_vectors = True

    def __init__(
        self,
        reader: IndexReader,
        workers: Workers,
        sources: Sequence[ScoreSource],
        weights: Mapping[str, float],
        *,
        depth: int = FUSED_DEPTH,
        background_penalty: float = 0.0,
    ) -> None:
        """``weights`` names scores of the ``sources``; ``depth`` is the number of papers each source brings;
        ``background_penalty`` is that of `qbe.search.background.BackgroundPenalty`. Raises UsageError for a
        name that no source has.
        """
        known = [name for source in sources for name in source.names]
        unknown = [name for name in weights if name not in known]
        if unknown:
            raise UsageError(f"expected `weights` of {', '.join(known)}, found {', '.join(unknown)}")
        self._papers, self._workers, self._sources = reader.papers, workers, sources
        self._weights, self._depth = weights, depth
        self._penalty = BackgroundPenalty(reader, background_penalty)

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """See `qbe.search.contracts.FirstStage`; scores are normalized over the candidates that are left.

        Raises UsageError where only the component ``facet`` has a weight and an aspect is no facet.
        """
        only_facet = not any(weight for name, weight in self._weights.items() if name != "facet")
        if only_facet and any(query.aspect.facet is None for query in queries):
            raise UsageError("expected a facet, since only the component facet has a weight, found none")
        candidates = self._candidates(queries, k, pools, allowed)

        def best(number: int) -> list[Hit]:
            rows, known = candidates[number]
            query = queries[number]
            components = self._components(query, rows, known)
            fused, background = self._penalty.apply(query, rows, weighted_sum(components, self._weights))
            if background is not None:
                components["background"] = background
            paper_ids = [self._papers.ids[row] for row in rows.tolist()]
            hits = best_hits(paper_ids, fused.astype(np.float32), k)
            return _explained(hits, paper_ids, components) if explain else hits

        return list(self._workers.map(best, range(len(queries))))

    def _candidates(
        self, queries: Sequence[EncodedAspect], k: int, pools: Pools, allowed: Selection | None
    ) -> list[tuple[Rows, Sequence[Candidates | None]]]:
        """The rows to be scored for each aspect, ascending, and what each source knows of them."""
        # One more than needed: the query paper is among them, and left out in the end.
        depth = min(max(k, self._depth + 1), len(self._papers))
        without_pool = [query for query, pool in zip(queries, pools, strict=True) if pool is None]

        def propose(source: ScoreSource) -> list[Candidates]:
            return source.batch_candidates(without_pool, depth, allowed)

        # A source spreads several queries over all threads by itself. Where all have pools none is asked: it
        # would open what it finds candidates by.
        side_by_side = map if len(without_pool) > 1 else self._workers.map
        by_source = list(side_by_side(propose, self._sources)) if without_pool else []
        proposed = zip(*by_source, strict=True)
        chosen: list[tuple[Rows, Sequence[Candidates | None]]] = []
        for pool in pools:
            if pool is not None:
                rows = rows_of(self._papers, pool)
                chosen.append((np.unique(rows), [None] * len(self._sources)))
                continue
            known = next(proposed)
            chosen.append((np.unique(np.concatenate([source.rows for source in known])), known))
        return chosen

    def _components(
        self, query: EncodedAspect, rows: Rows, known: Sequence[Candidates | None]
    ) -> dict[str, Scores]:
        """All scores (papers,) by name."""
        pairs = list(zip(self._sources, known, strict=True))
        scored = self._workers.map(lambda pair: pair[0].scores(query, rows, pair[1]), pairs)
        return {name: scores for each in scored for name, scores in each.items()}


def _explained(hits: Sequence[Hit], paper_ids: Sequence[str], components: Mapping[str, Scores]) -> list[Hit]:
    """Hits with the scores that each component, as it is before fusion, gave the paper."""
    place = {paper_id: i for i, paper_id in enumerate(paper_ids)}
    return [
        hit._replace(
            component_scores={name: float(scores[place[hit.paper_id]]) for name, scores in components.items()}
        )
        for hit in hits
    ]
