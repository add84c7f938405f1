"""Faceted queries drawn from an index by seed, and what exhaustive search finds for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbe.index.dense.exhaustive import DrawnQueries
    from qbe.index.index import Index
    from qbe.query import Query

SEED = 1
_OVER = 5
"""Papers of the exhaustive scan, in single precision, that are scored exactly, for each that is wanted."""


def drawn(index: Index, count: int) -> DrawnQueries:
    """The rows of the queries' papers and sentences."""
    from qbe.index.dense.exhaustive import draw_queries

    return draw_queries(index.layout, count, SEED)


def faceted_queries(index: Index, queries: DrawnQueries) -> list[Query]:
    """The queries drawn: papers, each with a facet that it has."""
    from qbe.index.papers import FACET_CODES
    from qbe.query import Query

    return [
        Query(index.papers[int(row)], FACET_CODES[index.layout.facets[rows[0]]])
        for row, rows in zip(queries.papers, queries.sentences, strict=True)
    ]


def best_rows(index: Index, queries: DrawnQueries, hits: int) -> list[list[int]]:
    """Rows of each query's best papers, best first, every paper of the index scored by its stored vectors."""
    from qbe.index.dense.exhaustive import best_papers
    from qbe.search.dense import DenseSearcher, best_hits

    dense, layout = DenseSearcher(index), index.layout
    scanned = best_papers(index.sentence_vectors, layout.starts, queries, _OVER * hits, index.similarity)
    best = []
    for query, rows in zip(faceted_queries(index, queries), scanned, strict=True):
        places = {index.papers.ids[row]: int(row) for row in rows}
        ranked = best_hits(list(places), dense.scores(dense.vectors(query), rows), hits)
        best.append([places[hit.paper_id] for hit in ranked])
    return best


def same_places(found: Sequence[Sequence[int]], best: Sequence[Sequence[int]]) -> float:
    """The share of the places of the best papers that hold the same paper."""
    same = sum(
        one == other
        for ours, exact in zip(found, best, strict=True)
        for one, other in zip(ours, exact, strict=False)
    )
    return same / sum(map(len, best))


def shared_papers(found: Sequence[Sequence[int]], best: Sequence[Sequence[int]]) -> float:
    """The share of the best papers that are found, in whatever place."""
    shared = sum(len({*ours} & {*exact}) for ours, exact in zip(found, best, strict=True))
    return shared / sum(map(len, best))
