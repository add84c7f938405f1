"""Rerankers whose scores can be worked by hand."""

from collections.abc import Callable, Mapping, Sequence

from qbe.query import Query
from qbe.rerank.reranker import Asked, RerankScore
from qbe.types import Match, Paper


class OneByOne:
    """Scores many queries one after the other."""

    def batch_score(
        self, asked: Asked, progress: Callable[[int], None] | None = None
    ) -> list[list[RerankScore]]:
        return [self.score(query, papers, progress) for query, papers in asked]


class ByHand(OneByOne):
    """Scores papers as told, and says that the query's sentence 0 and the paper's last one drove it."""

    name = "by-hand"

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores
        self.asked: list[list[str]] = []

    def score(
        self, query: Query, papers: Sequence[Paper], progress: Callable[[int], None] | None = None
    ) -> list[RerankScore]:
        self.asked.append([paper.paper_id for paper in papers])
        if progress:
            progress(len(papers))
        return [self._judged(paper) for paper in papers]

    def _judged(self, paper: Paper) -> RerankScore:
        score = self._scores[paper.paper_id]
        return RerankScore(score, Match(0, len(paper.sentences) - 1, score))


class Overlap(OneByOne):
    """Scores papers by the share of the words of both abstracts that they have in common."""

    name = "overlap"

    def score(
        self, query: Query, papers: Sequence[Paper], progress: Callable[[int], None] | None = None
    ) -> list[RerankScore]:
        asked = words(query.paper)
        if progress:
            progress(len(papers))
        return [RerankScore(len(asked & words(paper)) / len(asked | words(paper))) for paper in papers]


def words(paper: Paper) -> set[str]:
    return set(paper.abstract.lower().split())
