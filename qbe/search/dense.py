"""Search by contextual sentence vectors: approximate candidates, exact scores of stored vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.index.dense.contracts import CandidateSource, Compared
from qbe.index.dense.scoring import best_per_paper, mean_max, restrict
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.index.selection import Selection
from qbe.parallel import Workers
from qbe.search.contracts import Candidates, Rows, Scores
from qbe.search.fusion import best_hits
from qbe.types import Facet, Hit, Pools

Floats = NDArray[np.float32]


class DenseStage:
    """Ranks papers by how well their sentences match those of the query.

    Candidates come from a `CandidateSource`, their scores from a `Comparer`.

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     ((itself, best),) = DenseStage(reader, Workers()).batch_search([query], 2, [None])
    >>> itself.paper_id, round(itself.score, 2), best.paper_id
    ('s036', 1.0, 's051')
    """

    names = ("whole", "sentences", "facet")
    needs_vectors = True

    def __init__(
        self,
        reader: IndexReader,
        workers: Workers,
        nprobe: int | None = None,
    ) -> None:
        """``nprobe`` None: as the index was built.

        Raises IndexFormatError where the index has no vectors, UsageError for an ``nprobe`` of an index
        without lists.
        """
        self._papers, self._facet_mask, self._workers = reader.papers, reader.facet_mask, workers
        self._comparer = reader.comparer
        self._source: Callable[[], CandidateSource] = lambda: reader.candidate_source(nprobe)
        if nprobe is not None:
            self._source()  # what does not fit the index is refused before anything is searched

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """See `qbe.search.contracts.FirstStage`: out of a pool, or of the papers of the nearest sentences."""
        without_pool = [
            query.sentence_vectors for query, pool in zip(queries, pools, strict=True) if pool is None
        ]
        nearest = self._source().nearest(without_pool, k, allowed, mean_max) if without_pool else iter(())
        rows = [next(nearest) if pool is None else self._rows(pool) for pool in pools]

        def best(number: int) -> list[Hit]:
            paper_ids = [self._papers.ids[row] for row in rows[number].tolist()]
            scores = self._scores(queries[number], rows[number])
            hits = best_hits(paper_ids, scores, k)
            return [hit._replace(component_scores={"dense": hit.score}) for hit in hits] if explain else hits

        return list(self._workers.map(best, range(len(queries))))

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        """See `qbe.search.contracts.ScoreSource`: the best ``k`` papers by all their sentences."""
        vectors = [query.sentence_vectors for query in queries]
        nearest = list(self._source().nearest(vectors, k, allowed, mean_max))

        def best(number: int) -> Candidates:
            scores = self._scores(queries[number], nearest[number])
            order = np.argsort(-scores, kind="stable")[:k]
            return Candidates(np.sort(nearest[number][order]))

        return list(self._workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:  # noqa: ARG002
        """See `qbe.search.contracts.ScoreSource`: ``whole`` is the similarity of the whole papers,
        ``sentences`` the match with all sentences of a candidate, ``facet`` with those of the query's facet.
        """
        if not len(rows):
            return {name: np.zeros(0) for name in self.names}
        compared = self._comparer.compare(query.sentence_vectors, rows, query.whole)
        scores = {"whole": compared.whole, "sentences": self._matched(compared, None)}
        if query.aspect.facet is not None:
            scores["facet"] = self._matched(compared, query.aspect.facet)
        return {name: each.astype(np.float64) for name, each in scores.items() if each is not None}

    def _scores(self, query: EncodedAspect, rows: Rows) -> Floats:
        """Exact scores (papers,) by all sentences of the papers at these rows."""
        if not len(rows):
            return np.zeros(0, np.float32)
        return self._matched(self._comparer.compare(query.sentence_vectors, rows), None)

    def _matched(self, compared: Compared, facet: Facet | None) -> Floats:
        """Scores (papers,): of a facet only the candidates' sentences of that facet count (or the best guess,
        where the facets were predicted), except in papers that have none, whose sentences all count; for None
        they all do.
        """
        counted = compared.similarities
        if facet is not None:
            counted = restrict(counted, compared.starts, self._facet_mask(facet)[compared.rows])
        return mean_max(best_per_paper(counted, compared.starts))

    def _rows(self, paper_ids: Sequence[str]) -> Rows:
        """Rows of papers, ascending, each once."""
        return np.unique(rows_of(self._papers, paper_ids))
