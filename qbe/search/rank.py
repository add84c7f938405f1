"""Rank papers for aspects of queries by a first stage, and rerank the best of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from qbe.errors import ModelError
from qbe.index.papers import rows_of
from qbe.index.reader import IndexReader
from qbe.index.vectors import Selection
from qbe.models.encoding import EncodedAspect, PaperVectors
from qbe.query import PLAIN, Aspect, Query, TopicAspect, Variety
from qbe.runs import check_pools
from qbe.search.first_stages import FirstStage, Scores, best_hits, explained, penalize_background, z_normalize
from qbe.types import Hit, Match, Paper, TransportEntry

ASPECT_DEPTH = 1000  # papers that each liked aspect brings, where a query has several aspects
SMALL_POOL = 50  # papers; fewer are ranked, by several aspects, among those that a search would find
# Papers of a query that count for a candidate: two, chosen on the bibliographies of `citations` train, and of
# more than five the nearer half, chosen on people's judgements (systematic reviews).
BEST_PAPERS = 2


class GradedQuery(NamedTuple):
    """A labelled paper that candidates are compared with, and the vectors of all its sentences."""

    paper: Paper
    vectors: PaperVectors


class RankingRequest(NamedTuple):
    """A query with what ranks it; None as ``pool`` (of ids), or as what is ``allowed``, is all papers."""

    query: Query
    aspects: Sequence[EncodedAspect]
    pool: Sequence[str] | None = None
    allowed: Selection | None = None
    graded_by: Sequence[GradedQuery] = ()
    variety: Variety = PLAIN

    def label(self, number: int) -> str:
        """Name an aspect's score; with several papers the name tells the paper too."""
        aspect = self.query.aspects[number]
        return f"{aspect.name} of {aspect.paper.paper_id}" if len(self.query.papers) > 1 else aspect.name

    def candidates(self, reader: IndexReader) -> list[str] | None:
        """The pool less the query's papers, repetitions, what is not allowed; raises PaperNotFoundError."""
        if self.pool is None:
            return None
        own = {paper.paper_id for paper in self.query.papers}
        pool = [paper_id for paper_id in dict.fromkeys(self.pool) if paper_id not in own]
        check_pools({self.query.query_id: pool}, [self.query.query_id], reader)
        if self.allowed is None:
            return pool
        return [paper_id for paper_id in pool if self.allowed.mask[reader.papers.row(paper_id)]]


def rank(
    stage: FirstStage, reader: IndexReader, requests: Sequence[RankingRequest], k: int, *, explain: bool
) -> list[list[Hit]]:
    """Rank the best ``k`` papers for each query by a first stage, best first, ties by id.

    A query of one aspect keeps the stage's scores. For several, the papers that the positive ones bring, a
    small pool with these, or a larger pool are scored by every aspect, and scores are combined.
    """
    k = min(k, len(reader))
    pools = [request.candidates(reader) for request in requests]
    ranked: list[list[Hit]] = [[] for _ in requests]
    single: dict[Selection | None, list[int]] = {}
    for number, (request, pool) in enumerate(zip(requests, pools, strict=True)):
        candidates = request.allowed if pool is None else pool
        if candidates is not None and not len(candidates):
            continue
        if request.query.is_single:
            single.setdefault(request.allowed, []).append(number)
            continue
        depth = ASPECT_DEPTH if pool is not None else max(k, ASPECT_DEPTH)
        ranked[number] = _combined(stage, request, pool, min(depth, len(reader)), k, explain)
    for allowed, together in single.items():
        queries = [requests[number].aspects[0] for number in together]
        of_queries = [pools[number] for number in together]
        hits = stage.batch_search(queries, k + 1, of_queries, allowed, explain=explain)
        for number, query, found in zip(together, queries, hits, strict=True):
            own = query.aspect.paper.paper_id
            ranked[number] = [hit for hit in found if hit.paper_id != own][:k]
    return ranked


def _combined(
    stage: FirstStage, request: RankingRequest, pool: Sequence[str] | None, depth: int, k: int, explain: bool
) -> list[Hit]:
    """Rank a pool or all liked papers by several aspects, with scores normalized over those liked."""
    liked = liked_candidates(stage, request, depth)
    both = list(dict.fromkeys([*liked, *(pool or ())]))
    found = stage.batch_search(request.aspects, len(both), [both] * len(request.aspects))
    scores = ({hit.paper_id: hit.score for hit in aspect_hits} for aspect_hits in found)
    columns = [np.array([by_id[paper_id] for paper_id in both]) for by_id in scores]
    combined = combine_aspects(columns, request.query.aspects, len(liked) or None)
    hits = best_hits(both, combined, k if pool is None else len(both))
    if pool is not None and len(pool) >= SMALL_POOL:
        within = set(pool)
        hits = [hit for hit in hits if hit.paper_id in within][:k]
    if explain:
        by_label = {request.label(place): column for place, column in enumerate(columns)}
        hits = explained(hits, both, by_label)
    return hits


def liked_candidates(stage: FirstStage, request: RankingRequest, depth: int) -> list[str]:
    """Return about ``depth`` papers for each aspect with a positive weight, without the query's own."""
    positive = [encoded for encoded in request.aspects if encoded.aspect.weight > 0]
    own = {paper.paper_id for paper in request.query.papers}
    hits = stage.batch_search(positive, depth + len(own), [None] * len(positive), request.allowed)
    paper_ids = dict.fromkeys(hit.paper_id for aspect_hits in hits for hit in aspect_hits)
    return [paper_id for paper_id in paper_ids if paper_id not in own]


def combine_aspects(scores: Sequence[Scores], aspects: Sequence[Aspect], count: int | None = None) -> Scores:
    """Combine z-normalized scores (n,) by several aspects (CombSUM, Fox and Shaw, 1994; Rocchio, 1971)."""
    total = sum(abs(aspect.weight) for aspect in aspects)
    return sum_of_papers([z_normalize(each, count) for each in scores], aspects) / total


def sum_of_papers(scores: Sequence[Scores], aspects: Sequence[Aspect]) -> Scores:
    """Sum weighted scores (n,); of liked papers the best two, or half of over five, count as much as all."""
    by_paper: dict[str, Scores] = {}
    liked: set[str] = set()
    for score, aspect in zip(scores, aspects, strict=True):
        paper_id = aspect.paper.paper_id
        by_paper[paper_id] = by_paper.get(paper_id, np.zeros(len(score))) + aspect.weight * score
        if aspect.weight > 0:
            liked.add(paper_id)
    rest = sum((each for name, each in by_paper.items() if name not in liked), np.zeros(len(scores[0])))
    if not liked:  # where only disliked aspects are reranked
        return np.asarray(rest, dtype=np.float64)
    for_it = np.stack([each for name, each in by_paper.items() if name in liked])
    count = max(BEST_PAPERS, len(liked) // 2)
    best = for_it if len(liked) <= count else np.sort(for_it, axis=0)[-count:]
    return np.asarray(best.sum(axis=0) * (len(liked) / len(best)) + rest, dtype=np.float64)


def below(lowest: float, rest: Sequence[Hit]) -> list[Hit]:
    """Shift the scores of hits, best first, so that the best of them is 1 below ``lowest``."""
    return [hit._replace(score=lowest - 1 - (rest[0].score - hit.score)) for hit in rest]


# Called, always from the calling thread, with the number of papers scored since the last call.
Progress = Callable[[int], object]


class RerankScore(NamedTuple):
    """A reranker's score, comparable within one aspect; ``match`` is the pair that contributed most."""

    score: float
    match: Match | None = None
    plan: tuple[TransportEntry, ...] = ()
    grades: Mapping[str, float] | None = None


class RerankRequest(NamedTuple):
    """An aspect and its candidates; a paper of several requests is best one object."""

    query: EncodedAspect
    papers: Sequence[Paper]


Requests = Sequence[RerankRequest]
RequestScores = list[list[RerankScore]]


class Reranker(Protocol):
    """Scores candidates for an aspect of a query; a score must not depend on other papers or threads."""

    name: str
    needs_vectors: bool  # whether aspects must bring the vectors of their sentences
    takes_whole_abstracts: bool  # else aspects that are no facet keep the first stage's order

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        """Score the papers of each request, in their order; what concerns a candidate alone, once for all."""


class RerankStage:
    """Mixes a reranker's scores with those of the first stage.

    A reranked paper's score is ``(1 - weight) * z(first stage) + weight * z(reranker)``, both over the papers
    reranked, after the background penalty and the combination of several aspects. The other papers follow
    below, in the first stage's order, as does a query none of whose aspects the reranker takes.
    """

    def __init__(
        self, reranker: Reranker, depth: int, weight: float, background_penalty: float = 0.0
    ) -> None:
        self.reranker, self.depth, self._weight, self._penalty = reranker, depth, weight, background_penalty
        self.needs_vectors = background_penalty > 0 or getattr(reranker, "needs_vectors", False)
        # Whole abstracts are then reranked by the facets of their sentences, and picked sentences not.
        self.needs_labels: bool = getattr(reranker, "needs_labels", False)

    def reranks(self, aspect: Aspect | TopicAspect) -> bool:
        """Return True if an aspect is reranked."""
        takes_whole = getattr(self.reranker, "takes_whole_abstracts", True)
        return aspect.facet is not None or (takes_whole and not (aspect.positions and self.needs_labels))

    def rerank(
        self,
        reader: IndexReader,
        requests: Sequence[RankingRequest],
        ranked: Sequence[Sequence[Hit]],
        *,
        explain: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Hit]]:
        """Bring all hits of each query into their final order; raise ModelError for scores not finite."""
        papers: dict[str, Paper] = {}
        work: list[RerankRequest] = []
        chosen: list[list[int]] = []
        for request, hits in zip(requests, ranked, strict=True):
            numbers = [place for place, each in enumerate(request.query.aspects) if self.reranks(each)]
            top = [hit.paper_id for hit in hits[: self.depth]] if numbers else []
            papers |= {paper_id: reader.paper(paper_id) for paper_id in top if paper_id not in papers}
            candidates = [papers[paper_id] for paper_id in top]
            work += [RerankRequest(request.aspects[number], candidates) for number in numbers]
            chosen.append(numbers)
        scores = iter(self.reranker.batch_score(work, progress))
        final = []
        for request, hits, numbers in zip(requests, ranked, chosen, strict=True):
            of_aspects = list(islice(scores, len(numbers)))
            if not of_aspects or not hits:
                final.append(list(hits))
                continue
            if explain:
                named = [hit.component_scores or {} for hit in hits]
                hits = [  # what another reranking says of the first stage stays
                    hit._replace(component_scores={**each, "first_stage": hit.score, **each})
                    for hit, each in zip(hits, named, strict=True)
                ]
            mixed = self._mixed(reader, request, numbers, hits[: self.depth], of_aspects, explain)
            both = [*mixed, *below(min(hit.score for hit in mixed), hits[self.depth :])]
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
            column, _ = penalize_background(reader, request.aspects[number], rows, column, self._penalty)
            columns.append(column)
        aspects = [request.query.aspects[number] for number in numbers]
        combined = (columns[0] if request.query.is_single else combine_aspects(columns, aspects)).tolist()
        leading = max(range(len(numbers)), key=lambda place: aspects[place].weight)
        first, second = z_normalize(np.array([hit.score for hit in hits])), z_normalize(np.array(combined))
        mixed = ((1 - self._weight) * first + self._weight * second).tolist()
        reranked = []
        for place, hit in enumerate(hits):
            best = scores[leading][place]
            if explain:
                component_scores = {**(hit.component_scores or {}), "reranker": combined[place]}
                hit = hit._replace(component_scores=component_scores, plan=best.plan)
            match = best.match and best.match._replace(aspect=numbers[leading])
            grades = best.grades or hit.grades
            reranked.append(hit._replace(score=mixed[place], driven_by=match, grades=grades))
        return reranked
