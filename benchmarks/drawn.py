"""Faceted queries drawn from an index by seed, and their best papers by exhaustive search: every paper of the
index scored, block by block, to measure approximate search by. Indexes compare by cosine.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.index import Index
from qbe.index.papers import FACET_CODES, PaperLayout
from qbe.index.vectors import Vectors, best_per_paper
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import Dense
from qbe.types import Facet

SEED = 1
# Papers of the exhaustive scan, in single precision, that are scored exactly, for each of the best.
_OVER = 5

BLOCK_SENTENCES = 32768  # sentences scored at a time


class DrawnQueries(NamedTuple):
    """Queries drawn from an index: the row of each query's paper, and the rows of its sentences."""

    papers: NDArray[np.int64]
    sentences: Sequence[NDArray[np.int64]]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each query's sentences begin (queries,) once they are concatenated."""
        return np.concatenate([[0], np.cumsum([len(rows) for rows in self.sentences])[:-1]]).astype(np.int64)


def draw_queries(layout: PaperLayout, count: int) -> DrawnQueries:
    """Papers drawn at random, each with the sentences of one of its facets, or all where it has none."""
    random = np.random.default_rng(SEED)
    total = len(layout.starts) - 1
    papers = np.sort(random.choice(total, min(count, total), replace=False))
    chosen = []
    for paper in papers:
        rows = np.arange(layout.starts[paper], layout.starts[paper + 1])
        codes = layout.facets[rows]
        facets = [code for code in range(1, len(Facet) + 1) if (codes == code).any()]
        chosen.append(rows[codes == random.choice(facets)] if facets else rows)
    return DrawnQueries(papers.astype(np.int64), chosen)


def best_papers(
    vectors: Vectors, starts: NDArray[np.int64], queries: DrawnQueries, count: int
) -> NDArray[np.int64]:
    """Rows (queries, count) of the best papers by mean-max, but for the query's own; -1: none."""
    query_vectors = np.concatenate([vectors[rows].astype(np.float32) for rows in queries.sentences])
    total = len(starts) - 1
    kept_scores: Any = np.zeros((len(queries.papers), 0), np.float32)
    kept: Any = np.zeros((len(queries.papers), 0), np.int64)
    first = 0
    while first < total:
        last = max(int(np.searchsorted(starts, starts[first] + BLOCK_SENTENCES, "right")) - 1, first + 1)
        block = vectors[starts[first] : starts[last]].astype(np.float32)
        scores = _scores(query_vectors, block, starts[first:last] - starts[first], queries.starts)
        scores[np.arange(first, last) == queries.papers[:, None]] = -np.inf
        kept_scores = np.concatenate([kept_scores, scores], axis=1)
        kept = np.concatenate([kept, np.broadcast_to(np.arange(first, last), scores.shape)], axis=1)
        order = _best(kept_scores, count)
        kept_scores, kept = (np.take_along_axis(array, order, axis=1) for array in (kept_scores, kept))
        first = last
    return np.where(np.isneginf(kept_scores), -1, kept)


def _scores(queries: Any, block: Any, papers: Any, starts: Any) -> NDArray[np.float32]:
    best = best_per_paper(queries @ block.T, papers)
    counts = np.diff(np.append(starts, len(queries)))
    summed: Any = np.add.reduceat(best, starts, axis=0)
    scores: NDArray[np.float32] = summed / counts[:, None].astype(np.float32)
    return scores


def _best(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    if count < scores.shape[1]:
        chosen = np.sort(np.argpartition(-scores, count - 1, axis=1)[:, :count], axis=1)
    else:
        chosen = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)


def faceted_queries(index: Index, queries: DrawnQueries) -> list[Query]:
    """The queries: papers, each with a facet that it has."""
    return [
        Query(index.papers[int(row)], FACET_CODES[index.layout.facets[rows[0]]])
        for row, rows in zip(queries.papers, queries.sentences, strict=True)
    ]


def best_rows(index: Index, queries: DrawnQueries, hits: int) -> list[list[int]]:
    """Rows of each query's best papers, best first, every paper of the index scored by its stored vectors."""
    dense = Pipeline(index, Dense())
    starts, vectors = index.layout.starts, index.sentence_vectors
    scanned = best_papers(vectors, starts, queries, _OVER * hits)
    best = []
    for query, rows in zip(faceted_queries(index, queries), scanned, strict=True):
        rows_by_id = {index.papers.ids[row]: int(row) for row in rows if row >= 0}
        ranked = dense.search(query, hits, list(rows_by_id), matches=False)
        best.append([rows_by_id[hit.paper_id] for hit in ranked])
    return best


def same_places(ranked: Sequence[Sequence[int]], best: Sequence[Sequence[int]]) -> float:
    """The share of the ranks of the best papers that have the same paper in both rankings."""
    same = sum(
        row == best_row
        for rows, best_rows in zip(ranked, best, strict=True)
        for row, best_row in zip(rows, best_rows, strict=False)
    )
    return same / sum(map(len, best))


def shared_papers(ranked: Sequence[Sequence[int]], best: Sequence[Sequence[int]]) -> float:
    """The share of the best papers that are in the rankings, at any rank."""
    shared = sum(len({*rows} & {*best_rows}) for rows, best_rows in zip(ranked, best, strict=True))
    return shared / sum(map(len, best))
