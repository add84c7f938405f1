"""A reranker that keeps its scores, for searches that differ in their first stage alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from qbe.encode.aspect import EncodedAspect
from qbe.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore


class CachedReranker:
    """Scores each pair of an aspect and a candidate once, for as long as it lives.

    Scores are those of the reranker it is made of, which depend on nothing else (see
    `qbe.rerank.reranker.Reranker`). Aspects are told apart by title and sentences of their paper, facet and
    positions; candidates by their ids, so that all requests must be about one commit of an index. A pair
    takes some 300 bytes.

    >>> from qbe.parallel import Workers
    >>> from qbe.query import Aspect
    >>> from qbe.rerank.open import open_reranker
    >>> from qbe.types import Facet
    >>> reranker = CachedReranker(open_reranker())
    >>> query = EncodedAspect.of(Aspect(index.paper("s036"), Facet.METHOD))
    >>> first = reranker.batch_score([RerankRequest(query, [index.paper("s051")])])
    >>> reranker.pairs, reranker.batch_score([RerankRequest(query, [index.paper("s051")])]) == first
    (1, True)
    """

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self._scores: dict[Hashable, dict[str, RerankScore]] = {}

    @property
    def pairs(self) -> int:
        """The number of pairs whose scores are kept."""
        return sum(map(len, self._scores.values()))

    @property
    def name(self) -> str:
        """The name of the reranker."""
        return self._reranker.name

    @property
    def needs_vectors(self) -> bool:
        """Whether requests must bring the vectors of the aspect's sentences."""
        return self._reranker.needs_vectors

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        kept = [self._scores.setdefault(_key(request.query), {}) for request in requests]
        waiting: set[tuple[int, str]] = set()
        missing = []
        for request, scores in zip(requests, kept, strict=True):
            papers = []
            for paper in request.papers:
                pair = id(scores), paper.paper_id
                if paper.paper_id not in scores and pair not in waiting:
                    waiting.add(pair)
                    papers.append(paper)
            missing.append(RerankRequest(request.query, papers))
        if progress and (known := sum(len(request.papers) for request in requests) - len(waiting)):
            progress(known)
        computed = self._reranker.batch_score(missing, progress)
        for scores, request, new in zip(kept, missing, computed, strict=True):
            scores.update(zip((paper.paper_id for paper in request.papers), new, strict=True))
        return [
            [scores[paper.paper_id] for paper in request.papers]
            for request, scores in zip(requests, kept, strict=True)
        ]


def _key(query: EncodedAspect) -> Hashable:
    """What a score depends on, of an aspect."""
    paper = query.aspect.paper
    texts = tuple(sentence.text for sentence in paper.sentences)
    return paper.title, texts, query.aspect.facet, query.positions
