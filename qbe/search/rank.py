"""Rank papers for aspects of queries by a first stage, and rerank the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from qbe.errors import ModelError, PaperNotFoundError
from qbe.index.index import IndexReader
from qbe.index.papers import rows_of
from qbe.index.rows import Selection
from qbe.models.pooling import EncodedAspect
from qbe.query import Query
from qbe.search.first_stages import FirstStage, Scores, penalize_background
from qbe.search.fusion import below, best_hits, combine_aspects, interpolate
from qbe.types import Facet, Hit, Match, Paper, TransportEntry
from qbe.util.work import Workers

ASPECT_DEPTH = 1000
"""Papers that each aspect with a positive weight brings, where a query has several aspects."""


class RankingRequest(NamedTuple):
    """A query, its encoded aspects, and the papers to rank: a ``pool`` of ids, or None for the whole index;
    of either only the ``allowed`` ones, at least one (None: all).
    """

    query: Query
    aspects: Sequence[EncodedAspect]
    pool: Sequence[str] | None
    allowed: Selection | None = None

    def excluded(self) -> set[str]:
        """Ids of the query's own papers, which are never among its hits."""
        return {paper.paper_id for paper in self.query.papers}

    def label(self, number: int) -> str:
        """The name of an aspect's score; with several papers it names the paper too."""
        aspect = self.query.aspects[number]
        several = len(self.query.papers) > 1
        return f"{aspect.name} of {aspect.paper.paper_id}" if several else aspect.name


def checked_pool(reader: IndexReader, request: RankingRequest) -> list[str] | None:
    """Drop the query's own papers, repetitions and papers that are not allowed from the pool.

    Raises PaperNotFoundError for papers that the index lacks.

    >>> with index.reading() as reader:
    ...     checked_pool(reader, RankingRequest(Query(index.paper("s036")), [], ["s051", "s036", "s051"]))
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
    """Rank the best ``k`` papers for each query by a first stage, best first, ties by id.

    A query of one aspect keeps the stage's scores. For several aspects, the papers that the positive ones
    bring (or the pool) are scored by every aspect, and scores are combined
    (`qbe.search.fusion.combine_aspects`).

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
    single: dict[Selection | None, list[int]] = {}
    for number, (request, pool) in enumerate(zip(requests, pools, strict=True)):
        candidates = request.allowed if pool is None else pool
        if candidates is not None and not len(candidates):
            continue
        if request.query.is_single:
            single.setdefault(request.allowed, []).append(number)
            continue
        if pool is None:
            pool = liked_candidates(stage, request, min(max(k, ASPECT_DEPTH), len(reader)))
        ranked[number] = _combined(stage, request, pool, k, explain=explain)
    for allowed, together in single.items():
        queries = [requests[number].aspects[0] for number in together]
        of_queries = [pools[number] for number in together]
        hits = stage.batch_search(queries, k + 1, of_queries, allowed, explain=explain)
        for number, found in zip(together, hits, strict=True):
            excluded = requests[number].excluded()
            ranked[number] = [hit for hit in found if hit.paper_id not in excluded][:k]
    return ranked


def liked_candidates(stage: FirstStage, request: RankingRequest, depth: int) -> list[str]:
    """The ids of about ``depth`` papers for each aspect with a positive weight, without the query's own."""
    pairs = zip(request.aspects, request.query.aspects, strict=True)
    positive = [encoded for encoded, aspect in pairs if aspect.weight > 0]
    excluded = request.excluded()
    hits = stage.batch_search(positive, depth + len(excluded), [None] * len(positive), request.allowed)
    paper_ids = dict.fromkeys(hit.paper_id for aspect_hits in hits for hit in aspect_hits)
    return [paper_id for paper_id in paper_ids if paper_id not in excluded]


def _combined(
    stage: FirstStage, request: RankingRequest, pool: Sequence[str], k: int, *, explain: bool
) -> list[Hit]:
    """Rank the papers of a pool by all aspects together."""
    if not pool:
        return []
    hits = stage.batch_search(request.aspects, len(pool), [pool] * len(request.aspects))
    scores = [{hit.paper_id: hit.score for hit in aspect_hits} for aspect_hits in hits]
    columns = [np.array([by_id[paper_id] for paper_id in pool]) for by_id in scores]
    best = best_hits(pool, combine_aspects(columns, request.query.aspects), k)
    if not explain:
        return best
    labels = [request.label(number) for number in range(len(scores))]
    return [
        hit._replace(
            component_scores={label: by_id[hit.paper_id] for label, by_id in zip(labels, scores, strict=True)}
        )
        for hit in best
    ]


Progress = Callable[[int], object]
"""Called, always from the calling thread, with the number of papers scored since the last call."""


class RerankScore(NamedTuple):
    """A reranker's score of a candidate, more is better, comparable within one aspect only.

    ``match`` is the pair of sentences that contributed most, None for a reranker that compares none; ``plan``
    the transport plan, largest mass first, negligible masses left out; ``grades`` those by facet, if any.
    """

    score: float
    match: Match | None = None
    plan: tuple[TransportEntry, ...] = ()
    grades: Mapping[str, float] | None = None


class RerankRequest(NamedTuple):
    """An aspect and its candidates; a paper of several requests is best one object."""

    query: EncodedAspect
    papers: Sequence[Paper]


class Reranker(Protocol):
    """Scores candidates for an aspect of a query.

    A score must not depend on the other papers, their order or the number of threads.
    """

    @property
    def name(self) -> str:
        """The name of the model or matching."""

    @property
    def needs_vectors(self) -> bool:
        """True if aspects must bring the vectors of their sentences."""

    @property
    def takes_whole_abstracts(self) -> bool:
        """True if it scores aspects that are no facet; else these keep the first stage's order."""

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """Score the papers of each request, in their order.

        What concerns a candidate alone should be computed once for all requests.
        """


def scored_in_threads(
    score: Callable[[RerankRequest], list[RerankScore]],
    requests: Sequence[RerankRequest],
    workers: Workers,
    progress: Progress | None,
) -> list[list[RerankScore]]:
    """Score requests by a function of one, as many at a time as ``workers`` have threads."""
    scored = []
    for scores in workers.map(score, requests):
        scored.append(scores)
        if progress and scores:
            progress(len(scores))
    return scored


class RerankStage:
    """Mixes a reranker's scores with those of the first stage.

    A reranked paper's score is ``(1 - weight) * z(first stage) + weight * z(reranker)``, both z-normalized
    over the papers reranked; before that, the background penalty is subtracted from the reranker's scores
    (`qbe.search.first_stages.penalize_background`), and those of several aspects are combined
    (`qbe.search.fusion.combine_aspects`). The other papers follow below, in the first stage's order, as does
    a query none of whose aspects the reranker takes.

    >>> from qbe.search.matching import VectorMatching
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
        """``depth`` papers are reranked; a ``background_penalty`` needs an index with vectors."""
        self.reranker, self.depth = reranker, depth
        self._weight, self._penalty = weight, background_penalty

    @property
    def needs_vectors(self) -> bool:
        """True if aspects must bring the vectors of their sentences."""
        return self._penalty > 0 or getattr(self.reranker, "needs_vectors", False)

    def reranks(self, facet: Facet | None) -> bool:
        """True if aspects of that facet, None for other ones, are reranked."""
        return facet is not None or getattr(self.reranker, "takes_whole_abstracts", True)

    def pair_count(self, facets: Sequence[Facet | None], papers: int) -> int:
        """How many pairs are scored for a query whose aspects have these facets, out of so many papers."""
        return min(self.depth, papers) * sum(map(self.reranks, facets))

    def rerank(
        self,
        reader: IndexReader,
        requests: Sequence[RankingRequest],
        ranked: Sequence[Sequence[Hit]],
        *,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        """Bring all hits of each query (``ranked``, best first) into their final order.

        The reranker gets the candidates of all queries as one stream, each paper read once. Raises ModelError
        where a score of the reranker is not finite.
        """
        best = [list(hits[: self.depth]) for hits in ranked]
        chosen = [
            [number for number, aspect in enumerate(request.query.aspects) if self.reranks(aspect.facet)]
            for request in requests
        ]
        wanted = dict.fromkeys(
            hit.paper_id for hits, numbers in zip(best, chosen, strict=True) for hit in hits if numbers
        )
        papers = {paper_id: reader.paper(paper_id) for paper_id in wanted}
        work = [
            RerankRequest(request.aspects[number], [papers[hit.paper_id] for hit in hits])
            for request, hits, numbers in zip(requests, best, chosen, strict=True)
            for number in numbers
        ]
        scores = iter(self.reranker.batch_score(work, progress))
        final = []
        for request, hits, top, numbers in zip(requests, ranked, best, chosen, strict=True):
            if not numbers:
                final.append(list(hits))
                continue
            mixed = self._mixed(reader, request, numbers, top, list(islice(scores, len(numbers))), explain)
            lowest = min((hit.score for hit in mixed), default=0.0)
            both = [*mixed, *below(lowest, _with_first_stage(hits[self.depth :], explain))]
            final.append(sorted(both, key=lambda hit: (-hit.score, hit.paper_id)))
        return final

    def _mixed(
        self,
        reader: IndexReader,
        request: RankingRequest,
        numbers: Sequence[int],
        hits: Sequence[Hit],
        scores: Sequence[Sequence[RerankScore]],
        explain: bool,
    ) -> list[Hit]:
        """Mix the scores of both stages; ``scores`` are the reranker's by the aspects of these numbers."""
        if not hits:
            return []
        rows = rows_of(reader.papers, (hit.paper_id for hit in hits))
        columns: list[Scores] = []
        for number, scored in zip(numbers, scores, strict=True):
            column = np.array([each.score for each in scored], dtype=np.float64)
            for hit, score in zip(hits, column.tolist(), strict=True):
                if not math.isfinite(score):
                    name = getattr(self.reranker, "name", type(self.reranker).__name__)
                    raise ModelError(
                        f"expected finite scores of the reranker {name}, found {score} for paper "
                        f"{hit.paper_id}; choose another `rerank`"
                    )
            aspect = request.aspects[number]
            columns.append(penalize_background(reader, aspect, rows, column, self._penalty).scores)
        aspects = [request.query.aspects[number] for number in numbers]
        combined: list[float] = columns[0].tolist()
        if not request.query.is_single:
            combined = combine_aspects(columns, aspects).tolist()
        leading = max(range(len(numbers)), key=lambda place: aspects[place].weight)
        mixed = interpolate([hit.score for hit in hits], combined, self._weight)
        reranked = []
        for place, hit in enumerate(_with_first_stage(hits, explain)):
            best = scores[leading][place]
            if explain:
                component_scores = {**(hit.component_scores or {}), "reranker": combined[place]}
                hit = hit._replace(component_scores=component_scores, plan=best.plan)
            match = best.match and best.match._replace(aspect=numbers[leading])
            grades = best.grades or hit.grades
            reranked.append(hit._replace(score=mixed[place], driven_by=match, grades=grades))
        return reranked


def _with_first_stage(hits: Sequence[Hit], explain: bool) -> list[Hit]:
    """Name the first stage's score among the component scores, where hits are explained."""
    if not explain:
        return list(hits)
    named = []
    for hit in hits:
        components = dict(hit.component_scores or {})
        components.setdefault("first_stage", hit.score)
        named.append(hit._replace(component_scores=components))
    return named
