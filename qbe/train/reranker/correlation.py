"""Rank correlation of a reranker's scores with the grades of graded lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scipy.stats import spearmanr

from qbe.encode.aspect import EncodedAspect
from qbe.encode.hooks import Floats
from qbe.graded_pairs import GradedLists
from qbe.query import Aspect
from qbe.rerank.reranker import Reranker, RerankRequest
from qbe.types import Facet, Paper


def spearman(scores: Sequence[float], grades: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where all grades are equal, 0 where only all scores are.

    >>> spearman([0.1, 0.3, 0.2], [1, 3, 2])
    1.0
    """
    if len(set(grades)) < 2:
        return None
    return float(spearmanr(scores, grades).statistic) if len(set(scores)) > 1 else 0.0


def rank_correlations(
    reranker: Reranker,
    papers: Mapping[str, Paper],
    lists: GradedLists,
    vectors: Mapping[str, Floats] | None = None,
) -> list[dict[str, float]]:
    """For each facet the correlation (see `spearman`) of scores and grades by query.

    Queries whose grades for a facet are all equal are left out there. The reranker scores as in a search;
    ``vectors`` are those of the papers' sentences (sentences, dimension), for rerankers that need them.
    """
    facets: list[dict[str, float]] = []
    for number, facet in enumerate(Facet):
        correlations: dict[str, float] = {}
        for query, pairs in lists.items():
            aspect = Aspect(papers[query], facet)
            positions = aspect.selected_positions()
            sentences = None if vectors is None else vectors[query][list(positions)]
            candidates = [papers[pair.paper_id] for pair in pairs]
            request = RerankRequest(EncodedAspect(aspect, positions, sentences), candidates)
            (scores,) = reranker.batch_score([request])
            grades = [pair.grades[number] for pair in pairs]
            correlation = spearman([entry.score for entry in scores], grades)
            if correlation is not None:
                correlations[query] = correlation
        facets.append(correlations)
    return facets
