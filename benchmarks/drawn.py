"""Faceted queries drawn from an index by seed, and their best papers by exhaustive search: every paper of the
index scored, block by block, to measure approximate search by. Indexes compare by cosine.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.index import Index
from qbe.index.papers import FACET_CODES
from qbe.index.vectors import best_per_paper
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import Dense
from qbe.types import Facet

SEED = 1
# Papers of the exhaustive scan, in single precision, that are scored exactly, for each of the best.
_OVER = 5

BLOCK_PAPERS = 4096  # scored at a time


class Drawn(NamedTuple):
    """A query, the row of its paper, and the rows of its sentences."""

    query: Query
    paper: int
    sentences: NDArray[np.int64]


def draw_queries(index: Index, count: int) -> list[Drawn]:
    """Papers drawn at random, each with the sentences of one of its facets, or all where it has none."""
    random, layout = np.random.default_rng(SEED), index.layout
    drawn = []
    for paper in np.sort(random.choice(len(index), min(count, len(index)), replace=False)).tolist():
        rows = np.arange(layout.starts[paper], layout.starts[paper + 1])
        codes = layout.facets[rows]
        facets = [code for code in range(1, len(Facet) + 1) if (codes == code).any()]
        if facets:
            rows = rows[codes == random.choice(facets)]
        drawn.append(Drawn(Query(index.papers[paper], FACET_CODES[layout.facets[rows[0]]]), paper, rows))
    return drawn


def best_rows(index: Index, drawn: Sequence[Drawn], hits: int) -> list[list[int]]:
    """Rows of each query's best papers, best first, every paper of the index scored by its stored vectors."""
    dense, starts, stored = Pipeline(index, Dense()), index.layout.starts, index.sentence_vectors
    vectors = np.concatenate([stored[each.sentences].astype(np.float32) for each in drawn])
    counts = np.array([len(each.sentences) for each in drawn])
    scores = np.empty((len(drawn), len(index)), np.float32)
    for first in range(0, len(index), BLOCK_PAPERS):
        last = min(first + BLOCK_PAPERS, len(index))
        block = stored[starts[first] : starts[last]].astype(np.float32)
        best = best_per_paper(vectors @ block.T, starts[first:last] - starts[first])
        scores[:, first:last] = np.add.reduceat(best, np.cumsum(counts) - counts, axis=0) / counts[:, None]
    scores[np.arange(len(drawn)), [each.paper for each in drawn]] = -np.inf
    found = []
    for (query, _, _), of_query in zip(drawn, scores, strict=True):
        rows = np.argsort(-of_query, kind="stable")[: min(_OVER * hits, len(index) - 1)].tolist()
        rows_by_id = {index.papers.ids[row]: row for row in rows}
        ranked = dense.search(query, hits, list(rows_by_id), matches=False)
        found.append([rows_by_id[hit.paper_id] for hit in ranked])
    return found


def same_places(ranked: Sequence[Sequence[int]], best: Sequence[Sequence[int]]) -> float:
    """The share of the ranks of the best papers that have the same paper in both rankings."""
    pairs = (zip(*both, strict=False) for both in zip(ranked, best, strict=True))
    return sum(row == other for pair in pairs for row, other in pair) / sum(map(len, best))


def shared_papers(ranked: Sequence[Sequence[int]], best: Sequence[Sequence[int]]) -> float:
    """The share of the best papers that are in the rankings, at any rank."""
    shared = sum(len({*rows} & {*others}) for rows, others in zip(ranked, best, strict=True))
    return shared / sum(map(len, best))
