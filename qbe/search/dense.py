"""Search by contextual sentence vectors: FAISS finds candidates, stored vectors give the exact score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.encode.selection import selected_positions
from qbe.errors import UsageError
from qbe.index.compare import COMPARISONS
from qbe.index.index import Index
from qbe.search.matching import MATCHES, Floats, Ints, best_per_paper, gather, restrict
from qbe.types import Facet, Hit, Match, Query


class QueryVectors:
    """The vectors of a query: its chosen sentences (n, dimension) and its whole paper (dimension,)."""

    def __init__(self, index: Index, query: Query) -> None:
        """Stored vectors serve a paper of the index; any other is encoded (see `Index.vectors`)."""
        positions = list(selected_positions(query))
        vectors = index.vectors(query.paper)
        self.sentences: Floats = vectors.sentences[positions]
        self.whole: Floats = vectors.whole


class DenseSearcher:
    """Ranks papers by how well their sentences match those of the query."""

    def __init__(self, index: Index, match: str = "mean-max") -> None:
        """``match`` is one of MATCHES; raises UsageError for another, IndexFormatError without vectors."""
        if match not in MATCHES:
            raise UsageError(f"expected a match of {', '.join(MATCHES)}, found {match!r}")
        self._index = index
        self._match = MATCHES[match]
        self._compare = COMPARISONS[index.similarity]
        self._last: tuple[Query, QueryVectors] | None = None

    def vectors(self, query: Query) -> QueryVectors:
        """The vectors of a query; the last one's are kept, since ranking and matches both need them."""
        last = self._last  # read once, so that threads that share a searcher cannot swap their queries
        if last is None or last[0] is not query:
            self._last = last = query, QueryVectors(self._index, query)
        return last[1]

    def search(
        self, query: Query, hits: int, pool: Sequence[str] | None = None, *, explain: bool = False
    ) -> list[Hit]:
        """The best hits, ties by id, out of a pool or of the papers of the nearest sentences."""
        vectors = self.vectors(query)
        rows = self.candidates(vectors, hits) if pool is None else np.unique(self.rows(pool))
        best = best_hits([self._index.papers.ids[row] for row in rows], self.scores(vectors, rows), hits)
        return [hit._replace(parts={"dense": hit.score}) for hit in best] if explain else best

    def search_rows(self, vectors: QueryVectors, papers: int) -> Ints:
        """Rows of the best papers of the whole index."""
        rows = self.candidates(vectors, papers)
        best: Ints = rows[np.argsort(-self.scores(vectors, rows), kind="stable")[:papers]]
        return best

    def rows(self, docids: Sequence[str]) -> Ints:
        """Rows of papers given by id."""
        return np.array([self._index.papers.row(docid) for docid in docids], dtype=np.int64)

    def candidates(self, vectors: QueryVectors, papers: int) -> Ints:
        """Rows, ascending, of the papers that hold the sentences nearest to each query sentence."""
        neighbours = self._index.neighbours
        nearest = neighbours.nearest(vectors.sentences, max(neighbours.depth, 2 * papers))
        sentences = np.unique(nearest[nearest >= 0])
        found: Ints = np.unique(np.searchsorted(self._index.layout.starts, sentences, side="right") - 1)
        return found

    def scores(self, vectors: QueryVectors, rows: Ints) -> Floats:
        """Exact scores (papers,) of papers given by row, over all their sentences."""
        return self.scores_within(vectors, rows, [None])[0]

    def scores_within(
        self, vectors: QueryVectors, rows: Ints, facets: Sequence[Facet | None]
    ) -> list[Floats]:
        """Exact scores (papers,) for each facet: only the candidates' sentences of that facet count (or the
        best guess, where the facets were predicted), except for papers that have none, whose sentences all
        count; for None they all do.
        """
        if not len(rows):
            return [np.zeros(0, np.float32) for _ in facets]
        candidates = gather(rows, self._index.layout.starts)
        products = self._compare(vectors.sentences, self._index.sentence_vectors[candidates.rows])
        scores = []
        for facet in facets:
            counted = products
            if facet is not None:
                keep = self._index.facet_mask(facet)[candidates.rows]
                counted = restrict(products, candidates.starts, keep)
            scores.append(self._match(best_per_paper(counted, candidates.starts)))
        return scores

    def whole_scores(self, vectors: QueryVectors, rows: Ints) -> Floats:
        """Similarities (papers,) of the whole-paper vectors."""
        scores: Floats = self._compare(vectors.whole[None], self._index.whole_vectors[rows])[0]
        return scores

    def matches(self, query: Query, docids: Sequence[str]) -> list[tuple[Match, ...]]:
        """For each paper and each query sentence the paper's closest sentence, best pair first."""
        vectors = self.vectors(query)
        positions = selected_positions(query)
        found = []
        for row in self.rows(docids):
            first, last = self._index.layout.starts[row : row + 2]
            products = self._compare(vectors.sentences, self._index.sentence_vectors[first:last])
            closest = products.argmax(axis=1)
            pairs = [
                Match(position, int(best), float(products[i, best]))
                for i, (position, best) in enumerate(zip(positions, closest, strict=True))
            ]
            found.append(tuple(sorted(pairs, key=lambda pair: -pair.score)))
        return found


def best_hits(docids: Sequence[str], scores: NDArray[np.floating], hits: int) -> list[Hit]:
    """The best papers by score, ties by id."""
    chosen = np.arange(len(scores))
    if hits < len(scores):  # only those that reach the last place are worth sorting, ties with it included
        chosen = np.flatnonzero(scores >= np.partition(scores, -hits)[-hits])
    found = [Hit(docids[i], score) for i, score in zip(chosen.tolist(), scores[chosen].tolist(), strict=True)]
    return sorted(found, key=lambda hit: (-hit.score, hit.docid))[:hits]
