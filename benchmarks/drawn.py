"""Faceted queries drawn from an index by seed, and their best papers by exhaustive search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.exhaustive import DrawnQueries
    from qbe.index.index import Index
    from qbe.query import Query

SEED = 1
_OVER = 5
"""Papers of the exhaustive scan, in single precision, that are scored exactly, for each of the best."""


def drawn(index: Index, count: int) -> DrawnQueries:
    """The rows of the queries' papers and sentences."""
    from benchmarks.exhaustive import draw_queries

    return draw_queries(index.layout, count, SEED)


def faceted_queries(index: Index, queries: DrawnQueries) -> list[Query]:
    """The queries: papers, each with a facet that it has."""
    from qbe.index.papers import FACET_CODES
    from qbe.query import Query

    return [
        Query(index.papers[int(row)], FACET_CODES[index.layout.facets[rows[0]]])
        for row, rows in zip(queries.papers, queries.sentences, strict=True)
    ]


def best_rows(index: Index, queries: DrawnQueries, hits: int) -> list[list[int]]:
    """Rows of each query's best papers, best first, every paper of the index scored by its stored vectors."""
    from benchmarks.exhaustive import best_papers
    from qbe.search.pipeline import Pipeline
    from qbe.search.stages import Dense

    dense = Pipeline(index, Dense())
    starts, vectors = index.layout.starts, index.sentence_vectors
    scanned = best_papers(vectors, starts, queries, _OVER * hits, index.similarity)
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
