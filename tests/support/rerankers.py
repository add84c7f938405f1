"""Rerankers whose scores can be worked by hand, and requests to rerankers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qbe import Facet, Match, Paper, Query
from qbe.index.index import Index
from qbe.models.encoding import EncodedAspect, PaperVectors
from qbe.search.matching import VectorMatching
from qbe.search.projections import FacetProjection, ProjectedMatching, StoredPapers
from qbe.search.rank import Progress, Reranker, RerankRequest, RerankScore
from qbe.util.work import Workers

Vectors = Callable[[Paper], PaperVectors]


def request(query: Query, papers: Sequence[Paper], vectors: Vectors | None = None) -> RerankRequest:
    """The request of a query with one aspect; ``vectors`` gives those of its paper."""
    (aspect,) = query.aspects
    return RerankRequest(EncodedAspect.of(aspect, vectors and vectors(aspect.paper)), papers)


def score(
    reranker: Reranker,
    query: Query,
    papers: Sequence[Paper],
    progress: Progress | None = None,
    vectors: Vectors | None = None,
) -> list[RerankScore]:
    return reranker.batch_score([request(query, papers, vectors)], progress)[0]


class OneByOne:
    needs_vectors = False

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        scores = []
        for query, papers in requests:
            scores.append(self.score(query.aspect.paper, papers))  # type: ignore[attr-defined]
            if progress:
                progress(len(papers))
        return scores


class ByHand(OneByOne):
    """Scores papers as told, and says that the query's sentence 0 and the paper's last one drove it."""

    name = "by-hand"

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores
        self.requested: list[list[str]] = []

    def score(self, query: Paper, papers: Sequence[Paper]) -> list[RerankScore]:
        self.requested.append([paper.paper_id for paper in papers])
        return [self._scored(paper) for paper in papers]

    def _scored(self, paper: Paper) -> RerankScore:
        score = self._scores[paper.paper_id]
        return RerankScore(score, Match(0, len(paper.sentences) - 1, score))


class Overlap(OneByOne):
    """Scores papers by the share of the words of both abstracts that they have in common."""

    name = "overlap"

    def score(self, query: Paper, papers: Sequence[Paper]) -> list[RerankScore]:
        query_words = words(query)
        return [
            RerankScore(len(query_words & words(paper)) / len(query_words | words(paper))) for paper in papers
        ]


def words(paper: Paper) -> set[str]:
    return set(paper.abstract.lower().split())


def projected_over_index(index: Index, workers: Workers | None = None) -> ProjectedMatching:
    """Projections that differ by facet, over the vectors of an index or, of other papers, new ones."""
    dimension = index.sentence_vectors.shape[1]
    random = np.random.default_rng(5)
    projections = {
        facet: FacetProjection(random.standard_normal((dimension, dimension)), np.arange(1.0, 5.0))
        for facet in Facet
    }

    def stored(papers: Sequence[Paper]) -> StoredPapers:
        vectors = [index.vectors(paper) for paper in papers]
        return StoredPapers(
            np.concatenate([each.sentences for each in vectors]).astype(np.float64),
            np.cumsum([0, *(len(each.sentences) for each in vectors[:-1])]),
            np.stack([each.whole for each in vectors]).astype(np.float64),
        )

    return ProjectedMatching(projections, stored, workers)


def over_index(name: str, index: Index, **options: object) -> VectorMatching:
    return VectorMatching(
        name, lambda paper: index.vectors(paper).sentences, similarity=index.similarity, **options
    )
