"""Several rerankers one after another, each for fewer papers than the one before it."""

from __future__ import annotations

from collections.abc import Sequence

from qbe.index.reader import IndexReader
from qbe.rerank.reranker import Progress
from qbe.search.ranking import RankingRequest
from qbe.search.reranking import SecondStage
from qbe.types import Facet, Hit


class Cascade:
    """Reranks what its first stage ranked best by its second one, and so on (a cascade; Wang, Lin and
    Metzler, SIGIR 2011).

    Each stage takes the order and the scores of the one before it for those of a first stage.

    >>> from qbe.rerank.vector_matching import VectorMatching
    >>> from qbe.search.config import SearchConfig
    >>> from qbe.search.reranking import RerankStage
    >>> vectors = lambda paper: index.vectors(paper).sentences
    >>> def stage(matching, depth):
    ...     settings = SearchConfig(rerank=matching, rerank_depth=depth).rerank_settings
    ...     return RerankStage(VectorMatching(matching, vectors, similarity=index.similarity), settings)
    >>> cascade = Cascade([stage("mean-max", 50), stage("transport", 10)])
    >>> cascade.depth, cascade.pair_count([Facet.METHOD], papers=40)
    (50, 50)
    """

    def __init__(self, stages: Sequence[SecondStage]) -> None:
        """``stages``: at least one, in the order in which they rerank."""
        self._stages = stages

    @property
    def needs_vectors(self) -> bool:
        """Whether aspects must bring the vectors of their sentences."""
        return any(stage.needs_vectors for stage in self._stages)

    @property
    def depth(self) -> int:
        """How many papers of the first stage are reranked at all."""
        return max(stage.depth for stage in self._stages)

    def rerank(
        self,
        reader: IndexReader,
        requests: Sequence[RankingRequest],
        ranked: Sequence[Sequence[Hit]],
        *,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        """See `qbe.search.reranking.SecondStage.rerank`."""
        hits = [list(each) for each in ranked]
        for stage in self._stages:
            hits = stage.rerank(reader, requests, hits, explain=explain, progress=progress)
        return hits

    def pair_count(self, facets: Sequence[Facet | None], papers: int) -> int:
        """See `qbe.search.reranking.SecondStage.pair_count`."""
        return sum(stage.pair_count(facets, papers) for stage in self._stages)
