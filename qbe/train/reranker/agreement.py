"""How well a reranker, asked as a search asks it, orders the candidates of graded lists."""

from __future__ import annotations

from collections.abc import Mapping

from qbe.query import Query
from qbe.rerank.reranker import Reranker
from qbe.train.graded_pairs import GradedLists
from qbe.train.reranker.fit import correlation
from qbe.types import Facet, Paper


def agreement(reranker: Reranker, papers: Mapping[str, Paper], lists: GradedLists) -> list[dict[str, float]]:
    """For each facet Spearman's correlation of scores and grades by query, but for queries whose grades are
    all alike for it (see `qbe.train.reranker.fit.correlation`).
    """
    found: list[dict[str, float]] = []
    for number, facet in enumerate(Facet):
        values: dict[str, float] = {}
        for query, pairs in lists.items():
            judged = reranker.score(Query(papers[query], facet), [papers[pair.paper_id] for pair in pairs])
            grades = [pair.grades[number] for pair in pairs]
            for value in correlation([one.score for one in judged], grades):
                values[query] = value
        found.append(values)
    return found
