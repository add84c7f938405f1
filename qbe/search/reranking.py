"""The second stage of a search: a reranker scores the best papers of the first one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

import numpy as np

from qbe.errors import ModelError
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore
from qbe.search.background import BackgroundPenalty
from qbe.search.contracts import Scores
from qbe.search.fusion import below, combine_aspects, interpolate
from qbe.search.ranking import RankingRequest
from qbe.types import Facet, Hit


class RerankStage:
    """Mixes a reranker's scores with those of the first stage.

    A reranked paper's score is ``(1 - weight) * z(first stage) + weight * z(reranker)``, both z-normalized
    over the papers reranked; the background penalty is subtracted from the reranker's scores
    (`qbe.search.background`), and those of several aspects are combined
    (`qbe.search.fusion.combine_aspects`), first. The other papers follow below them in the first stage's
    order. An explained hit has the reranker's score under the name ``reranker``.
    Each reranked hit carries the pair of sentences that contributed most to its score, where the reranker
    has one, and if explained its transport plan. A query none of whose aspects the reranker takes keeps the
    ranking of the first stage.

    >>> from qbe.rerank.matching import VectorMatching
    >>> matching = VectorMatching(
    ...     "mean-max", lambda paper: index.vectors(paper).sentences, similarity=index.similarity
    ... )
    >>> stage = RerankStage(matching, depth=50, weight=0.5)
    >>> stage.pair_count([Facet.METHOD, None], papers=20)  # each of the 20 papers for both aspects
    40
    """

    def __init__(
        self, reranker: Reranker, depth: int, weight: float, background_penalty: float = 0.0
    ) -> None:
        """``depth`` is how many papers of the first stage are reranked; ``weight``, from 0 to 1, the
        reranker's share of the score; ``background_penalty`` needs an index with vectors.
        """
        self.reranker, self.depth = reranker, depth
        self._weight, self._penalty = weight, background_penalty

    @property
    def needs_vectors(self) -> bool:
        """Whether aspects must bring the vectors of their sentences."""
        return self._penalty > 0 or getattr(self.reranker, "needs_vectors", False)

    def reranks(self, facet: Facet | None) -> bool:
        """Whether an aspect of that facet is reranked: one that is no facet only if the reranker takes it."""
        return facet is not None or getattr(self.reranker, "takes_whole_abstracts", True)

    def rerank(
        self,
        reader: IndexReader,
        requests: Sequence[RankingRequest],
        ranked: Sequence[Sequence[Hit]],
        *,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        """All hits of each query (``ranked``, best first) in their final order, with their final scores.

        The reranker gets the candidates of all queries as one stream, each paper read once. Raises ModelError
        where a score of the reranker is not finite.
        """
        best = [list(hits[: self.depth]) for hits in ranked]
        chosen = [self._reranked_aspects(request) for request in requests]
        papers = {
            paper_id: reader.paper(paper_id)
            for paper_id in dict.fromkeys(
                hit.paper_id for hits, numbers in zip(best, chosen, strict=True) for hit in hits if numbers
            )
        }
        scores = iter(
            self.reranker.batch_score(
                [
                    RerankRequest(request.aspects[number], [papers[hit.paper_id] for hit in hits])
                    for request, hits, numbers in zip(requests, best, chosen, strict=True)
                    for number in numbers
                ],
                progress,
            )
        )
        final = []
        for request, hits, top, numbers in zip(requests, ranked, best, chosen, strict=True):
            if not numbers:
                final.append(list(hits))
                continue
            aspect_scores = list(islice(scores, len(numbers)))
            columns = self._columns(reader, request, numbers, top, aspect_scores)
            mixed = self._mixed(request, numbers, top, aspect_scores, columns, explain=explain)
            lowest = min((hit.score for hit in mixed), default=0.0)
            both = [*mixed, *below(lowest, _with_first_stage(hits[self.depth :], explain=explain))]
            final.append(sorted(both, key=lambda hit: (-hit.score, hit.paper_id)))
        return final

    def pair_count(self, facets: Sequence[Facet | None], papers: int) -> int:
        """How many pairs are scored for a query whose aspects have these facets, out of so many papers."""
        return min(self.depth, papers) * sum(map(self.reranks, facets))

    def _reranked_aspects(self, request: RankingRequest) -> list[int]:
        return [number for number, aspect in enumerate(request.query.aspects) if self.reranks(aspect.facet)]

    def _mixed(
        self,
        request: RankingRequest,
        numbers: Sequence[int],
        hits: Sequence[Hit],
        aspect_scores: Sequence[Sequence[RerankScore]],
        columns: Sequence[Scores],
        *,
        explain: bool,
    ) -> list[Hit]:
        """One query's reranked hits with the scores of both stages mixed, in the order of ``hits``.

        ``columns`` are the reranker's scores by aspect (papers,), less the background penalty.
        """
        if not hits:
            return []
        aspects = [request.query.aspects[number] for number in numbers]
        combined: list[float] = columns[0].tolist()
        if not request.query.is_single:
            combined = combine_aspects(columns, aspects).tolist()
        leading = max(range(len(numbers)), key=lambda place: aspects[place].weight)
        mixed = interpolate([hit.score for hit in hits], combined, self._weight)
        reranked = []
        for place, hit in enumerate(_with_first_stage(hits, explain=explain)):
            best = aspect_scores[leading][place]
            if explain:
                component_scores = {**(hit.component_scores or {}), "reranker": combined[place]}
                hit = hit._replace(component_scores=component_scores, plan=best.plan)
            match = best.match and best.match._replace(aspect=numbers[leading])
            reranked.append(hit._replace(score=mixed[place], driven_by=match))
        return reranked

    def _columns(
        self,
        reader: IndexReader,
        request: RankingRequest,
        numbers: Sequence[int],
        hits: Sequence[Hit],
        aspect_scores: Sequence[Sequence[RerankScore]],
    ) -> list[Scores]:
        """The reranker's scores (papers,) of the aspects with these numbers, less the background penalty;
        raises ModelError for scores that are not finite.
        """
        columns = []
        penalty = BackgroundPenalty(reader, self._penalty)
        rows = rows_of(reader.papers, (hit.paper_id for hit in hits))
        for number, scored in zip(numbers, aspect_scores, strict=True):
            self._check_finite(hits, scored)
            column = np.array([entry.score for entry in scored], dtype=np.float64)
            columns.append(penalty.apply(request.aspects[number], rows, column).scores)
        return columns

    def _check_finite(self, hits: Sequence[Hit], scores: Sequence[RerankScore]) -> None:
        for hit, scored in zip(hits, scores, strict=True):
            if not math.isfinite(scored.score):
                name = getattr(self.reranker, "name", type(self.reranker).__name__)
                raise ModelError(
                    f"expected finite scores of the reranker {name}, found {scored.score} for paper "
                    f"{hit.paper_id}; choose another `rerank`"
                )


def _with_first_stage(hits: Sequence[Hit], *, explain: bool) -> list[Hit]:
    """Hits that, where they are explained, name the first stage's score; those that do already keep it."""
    if not explain:
        return list(hits)
    named = []
    for hit in hits:
        components = dict(hit.component_scores or {})
        components.setdefault("first_stage", hit.score)
        named.append(hit._replace(component_scores=components))
    return named
