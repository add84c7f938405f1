"""The two stages of a search: papers ranked for aspects of queries, and the best of them reranked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from qbe.errors import ModelError, PaperNotFoundError
from qbe.index.reader import IndexReader
from qbe.index.rows import Selection
from qbe.index.views import rows_of
from qbe.models.pooling import EncodedAspect
from qbe.query import Query
from qbe.search.contracts import FirstStage, Scores
from qbe.search.fusion import below, best_hits, combine_aspects, interpolate
from qbe.search.matches import penalize_background
from qbe.search.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore
from qbe.types import Facet, Hit

ASPECT_DEPTH = 1000
"""Papers that each aspect with a positive weight brings, where a query has several aspects."""


class RankingRequest(NamedTuple):
    """A query, its encoded aspects, and the ids of the papers to rank, None for the whole index; of either
    only those that are ``allowed`` some papers are ranked (None: all).

    >>> request = RankingRequest(Query(index.paper("s036")), [], None)
    >>> request.excluded(), request.label(0)
    ({'s036'}, 'abstract')
    """

    query: Query
    aspects: Sequence[EncodedAspect]
    pool: Sequence[str] | None
    allowed: Selection | None = None

    def excluded(self) -> set[str]:
        """Ids of the query's own papers, which are never among its hits."""
        return {paper.paper_id for paper in self.query.papers}

    def label(self, number: int) -> str:
        """The name of an aspect's score: of several papers it names the paper as well."""
        aspect = self.query.aspects[number]
        several = len(self.query.papers) > 1
        return f"{aspect.name} of {aspect.paper.paper_id}" if several else aspect.name


def checked_pool(reader: IndexReader, request: RankingRequest) -> list[str] | None:
    """The pool without the query's own papers, repetitions, and papers that may not be found; raises
    PaperNotFoundError for papers that the index lacks.

    >>> request = RankingRequest(Query(index.paper("s036")), [], ["s051", "s036", "s051"])
    >>> with index.reading() as reader:
    ...     checked_pool(reader, request)
    ['s051']
    """
    if request.pool is None:
        return None
    excluded = request.excluded()
    pool = [paper_id for paper_id in dict.fromkeys(request.pool) if paper_id not in excluded]
    missing = [paper_id for paper_id in pool if reader.papers.find(paper_id) is None]
    if missing:
        raise PaperNotFoundError(
            f"expected the pool of {request.query.aspects[0].paper.paper_id} to name papers of the index, "
            f"found {len(missing)} of {len(pool)} that it lacks, such as {missing[0]}; "
            "build the index from the collection of the pool"
        )
    if request.allowed is None:
        return pool
    mask = request.allowed.mask
    return [paper_id for paper_id in pool if mask[reader.papers.row(paper_id)]]


def rank(
    stage: FirstStage, reader: IndexReader, requests: Sequence[RankingRequest], k: int, *, explain: bool
) -> list[list[Hit]]:
    """The best ``k`` papers for each query by the first stage, best first, ties by id.

    A query of one aspect has the stage's own scores. For one of several, the papers that its positive
    aspects bring (or its pool) are scored by every aspect, and the scores combined
    (`qbe.search.fusion.combine_aspects`).

    >>> from qbe.util.parallel import Workers
    >>> from qbe.search.first_stages import BM25Stage
    >>> query = Query(index.paper("s036"))
    >>> request = RankingRequest(query, [EncodedAspect.of(query.aspects[0])], None)
    >>> with index.reading() as reader:
    ...     (hits,) = rank(BM25Stage(reader, Workers()), reader, [request], 2, explain=False)
    >>> [hit.paper_id for hit in hits]
    ['s059', 's031']
    """
    k = min(k, len(reader))
    pools = [checked_pool(reader, request) for request in requests]
    ranked: list[list[Hit]] = [[] for _ in requests]
    pairs = enumerate(zip(requests, pools, strict=True))
    papers = [(number, request.allowed if pool is None else pool) for number, (request, pool) in pairs]
    numbers = [number for number, candidates in papers if candidates is None or len(candidates)]
    single = [number for number in numbers if requests[number].query.is_single]
    for allowed in dict.fromkeys(requests[number].allowed for number in single):
        together = [number for number in single if requests[number].allowed is allowed]
        hits = stage.batch_search(
            [requests[number].aspects[0] for number in together],
            k + 1,
            [pools[number] for number in together],
            allowed,
            explain=explain,
        )
        for number, query_hits in zip(together, hits, strict=True):
            excluded = requests[number].excluded()
            ranked[number] = [hit for hit in query_hits if hit.paper_id not in excluded][:k]
    several = [number for number in numbers if not requests[number].query.is_single]
    for number in several:
        pool = pools[number]
        if pool is None:
            pool = liked_candidates(stage, requests[number], min(max(k, ASPECT_DEPTH), len(reader)))
        ranked[number] = _combined(stage, requests[number], pool, k, explain=explain)
    return ranked


def liked_candidates(stage: FirstStage, request: RankingRequest, depth: int) -> list[str]:
    """The papers that the aspects with a positive weight bring, each once, the query's own left out; each
    aspect brings about ``depth``.
    """
    positive = [
        encoded
        for encoded, aspect in zip(request.aspects, request.query.aspects, strict=True)
        if aspect.weight > 0
    ]
    excluded = request.excluded()
    hits = stage.batch_search(positive, depth + len(excluded), [None] * len(positive), request.allowed)
    paper_ids = dict.fromkeys(hit.paper_id for aspect_hits in hits for hit in aspect_hits)
    return [paper_id for paper_id in paper_ids if paper_id not in excluded]


def _combined(
    stage: FirstStage, request: RankingRequest, pool: Sequence[str], k: int, *, explain: bool
) -> list[Hit]:
    """The papers of a pool, ranked by all aspects together."""
    if not pool:
        return []
    hits = stage.batch_search(request.aspects, len(pool), [pool] * len(request.aspects))
    scores = [{hit.paper_id: hit.score for hit in aspect_hits} for aspect_hits in hits]
    columns = [np.array([by_id[paper_id] for paper_id in pool]) for by_id in scores]
    combined = combine_aspects(columns, request.query.aspects)
    best = best_hits(pool, combined, k)
    if not explain:
        return best
    return [
        hit._replace(
            component_scores={
                request.label(number): by_id[hit.paper_id] for number, by_id in enumerate(scores)
            }
        )
        for hit in best
    ]


class RerankStage:
    """Mixes a reranker's scores with those of the first stage.

    A reranked paper's score is ``(1 - weight) * z(first stage) + weight * z(reranker)``, both z-normalized
    over the papers reranked; the background penalty is subtracted from the reranker's scores
    (`qbe.search.matches`), and those of several aspects are combined
    (`qbe.search.fusion.combine_aspects`), first. The other papers follow below them in the first stage's
    order. An explained hit has the reranker's score under the name ``reranker``.
    Each reranked hit carries the pair of sentences that contributed most to its score, where the reranker
    has one, and if explained its transport plan. A query none of whose aspects the reranker takes keeps the
    ranking of the first stage.

    >>> from qbe.search.rerank.matching import VectorMatching
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
            grades = best.grades or hit.grades
            reranked.append(hit._replace(score=mixed[place], driven_by=match, grades=grades))
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
        rows = rows_of(reader.papers, (hit.paper_id for hit in hits))
        for number, scored in zip(numbers, aspect_scores, strict=True):
            self._check_finite(hits, scored)
            column = np.array([entry.score for entry in scored], dtype=np.float64)
            query = request.aspects[number]
            columns.append(penalize_background(reader, query, rows, column, self._penalty).scores)
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
