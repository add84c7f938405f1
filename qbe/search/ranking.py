"""The first stage of a search: queries of one or several aspects to ranked papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qbe.encode.aspect import EncodedAspect
from qbe.errors import PaperNotFoundError
from qbe.index.reader import IndexReader
from qbe.index.rows import Selection
from qbe.query import Query
from qbe.search.contracts import FirstStage
from qbe.search.fusion import best_hits, combine_aspects
from qbe.types import Hit

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
            f"expected the pool of {request.query.query_id} to name papers of the index, found "
            f"{len(missing)} of {len(pool)} that it lacks, such as {missing[0]}; "
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

    >>> from qbe.parallel import Workers
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
