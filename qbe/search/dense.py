"""Search by contextual sentence vectors: FAISS finds candidates, stored vectors give the exact score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qbe.encode.selection import selected_positions
from qbe.errors import UsageError
from qbe.index.dense.compare import COMPARISONS
from qbe.index.dense.scoring import MATCHES, Floats, Ints, best_per_paper, restrict
from qbe.index.index import Index
from qbe.parallel import ordered_map
from qbe.query import Query
from qbe.types import Facet, Hit, Match, Pools

if TYPE_CHECKING:
    from qbe.encode.encoder import PaperVectors


class QueryVectors:
    """The vectors of a query: its chosen sentences (n, dimension) and its whole paper (dimension,)."""

    def __init__(self, index: Index, query: Query, vectors: PaperVectors | None = None) -> None:
        """Stored vectors serve a paper of the index; any other is encoded (see `Index.vectors`), unless its
        ``vectors`` are given.
        """
        positions = list(selected_positions(query))
        vectors = vectors or index.vectors(query.paper)
        self.sentences: Floats = vectors.sentences[positions]
        self.whole: Floats = vectors.whole


class DenseSearcher:
    """Ranks papers by how well their sentences match those of the query."""

    def __init__(self, index: Index, match: str = "mean-max", nprobe: int | None = None) -> None:
        """``match`` is one of MATCHES; raises UsageError for another, IndexFormatError without vectors."""
        if match not in MATCHES:
            raise UsageError(f"expected a match of {', '.join(MATCHES)}, found {match!r}")
        self._index = index
        self._match = MATCHES[match]
        self._compare = COMPARISONS[index.similarity]
        self._nprobe = nprobe
        self._kept: dict[int, tuple[Query, QueryVectors]] = {}

    def vectors(self, query: Query) -> QueryVectors:
        """The vectors of a query; see `vectors_many`."""
        return self.vectors_many([query])[0]

    def vectors_many(self, queries: Sequence[Query]) -> list[QueryVectors]:
        """The vectors of queries, those from outside encoded as many at a time as the index has threads.

        Those of the last queries that had to be looked up are kept, since ranking and matches both need them.
        """
        kept = self._kept  # read once, so that threads that share a searcher cannot swap their queries
        if not all(id(query) in kept for query in queries):
            papers = [query.paper for query in queries]
            found = ordered_map(self._index.vectors, papers, min(len(papers), self._index.threads))
            pairs = zip(queries, found, strict=True)
            kept = {id(query): (query, QueryVectors(self._index, query, own)) for query, own in pairs}
            self._kept = kept
        return [kept[id(query)][1] for query in queries]

    def search(
        self, query: Query, hits: int, pool: Sequence[str] | None = None, *, explain: bool = False
    ) -> list[Hit]:
        """The best hits, ties by id, out of a pool or of the papers of the nearest sentences."""
        return self.batch_search([query], hits, [pool], explain=explain)[0]

    def batch_search(
        self, queries: Sequence[Query], hits: int, pools: Pools, *, explain: bool = False
    ) -> list[list[Hit]]:
        """What `search` finds for each query and its pool."""
        vectors = self.vectors_many(queries)
        near = self.candidates([own for own, pool in zip(vectors, pools, strict=True) if pool is None], hits)
        rows = [next(near) if pool is None else np.unique(self.rows(pool)) for pool in pools]

        def best(query: int) -> list[Hit]:
            paper_ids = [self._index.papers.ids[row] for row in rows[query]]
            found = best_hits(paper_ids, self.scores(vectors[query], rows[query]), hits)
            return [hit._replace(parts={"dense": hit.score}) for hit in found] if explain else found

        return list(ordered_map(best, range(len(queries)), min(len(queries), self._index.threads)))

    def search_rows(self, vectors: Sequence[QueryVectors], papers: int) -> list[Ints]:
        """Rows of the best papers of the whole index for each query."""
        near = list(self.candidates(vectors, papers))

        def best(query: int) -> Ints:
            order = np.argsort(-self.scores(vectors[query], near[query]), kind="stable")[:papers]
            rows: Ints = near[query][order]
            return rows

        return list(ordered_map(best, range(len(near)), min(len(near), self._index.threads)))

    def rows(self, paper_ids: Sequence[str]) -> Ints:
        """Rows of papers given by id."""
        return np.array([self._index.papers.row(paper_id) for paper_id in paper_ids], dtype=np.int64)

    def candidates(self, vectors: Sequence[QueryVectors], papers: int) -> Iterator[Ints]:
        """Rows, ascending, of the papers that hold the sentences nearest to each query's sentences.

        FAISS is asked once for all queries, as far as their answers are to be had at a time.
        """
        return self._index.candidate_source(self._nprobe).nearest([own.sentences for own in vectors], papers)

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
        candidates = self._index.vector_store.gather(rows)
        products = self._compare(vectors.sentences, candidates.vectors)
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

    def matches(self, query: Query, paper_ids: Sequence[str]) -> list[tuple[Match, ...]]:
        """For each paper and each query sentence the paper's closest sentence, best pair first."""
        vectors = self.vectors(query)
        positions = selected_positions(query)
        found = []
        for row in self.rows(paper_ids):
            first, last = self._index.layout.starts[row : row + 2]
            products = self._compare(vectors.sentences, self._index.sentence_vectors[first:last])
            closest = products.argmax(axis=1)
            pairs = [
                Match(position, int(best), float(products[i, best]))
                for i, (position, best) in enumerate(zip(positions, closest, strict=True))
            ]
            found.append(tuple(sorted(pairs, key=lambda pair: -pair.score)))
        return found


def best_hits(paper_ids: Sequence[str], scores: NDArray[np.floating], hits: int) -> list[Hit]:
    """The best papers by score, ties by id."""
    chosen = np.arange(len(scores))
    if hits < len(scores):  # only those that reach the last place are worth sorting, ties with it included
        chosen = np.flatnonzero(scores >= np.partition(scores, -hits)[-hits])
    found = [
        Hit(paper_ids[i], score) for i, score in zip(chosen.tolist(), scores[chosen].tolist(), strict=True)
    ]
    return sorted(found, key=lambda hit: (-hit.score, hit.paper_id))[:hits]
