"""Candidates and scores by the projected vectors of papers, as one more source of the fused first stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.cite.late_interaction import (
    Doubles,
    MeasuredPapers,
    Projection,
    TransformedQuery,
    lengths,
    search_vectors,
    terms,
    transformed,
)
from qbe.encode.aspect import EncodedAspect
from qbe.index.dense.contracts import CandidateSource
from qbe.index.reader import IndexReader
from qbe.index.selection import Selection
from qbe.parallel import Workers
from qbe.search.contracts import Candidates, Rows, Scores, in_order

NAME = "citation"


class CitationSource:
    """Proposes and scores papers by late interaction of projected vectors (`qbe.cite.late_interaction`).

    It is a `qbe.search.contracts.ScoreSource`; several threads may use it. The lengths of the projections of
    stored vectors are computed when a paper is first scored, and kept: 8 bytes a vector.
    """

    names = (NAME,)

    def __init__(self, reader: IndexReader, workers: Workers, projection: Projection) -> None:
        """Raises IndexFormatError where the index has no vectors."""
        self._workers, self._projection = workers, projection
        self._vectors = reader.vector_store
        self._source: Callable[[], CandidateSource] = lambda: reader.candidate_source(None)
        self._sentence_lengths = np.full(len(reader.sentence_vectors), np.nan)
        self._whole_lengths = np.full(len(reader.whole_vectors), np.nan)

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, among: Selection | None = None
    ) -> list[Candidates]:
        """See `qbe.search.contracts.ScoreSource`."""
        if not queries:
            return []
        vectors = [search_vectors(self._transformed(query).sentences) for query in queries]
        nearest = list(self._source().nearest(vectors, k, among))

        def best(number: int) -> Candidates:
            rows = nearest[number]
            scores = self.scores(queries[number], rows, None)[NAME]
            order = np.argsort(-scores, kind="stable")[:k]
            return in_order(rows[order], scores[order])

        return list(self._workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        """See `qbe.search.contracts.ScoreSource`."""
        scores = np.full(len(rows), np.nan) if known is None else known.scores_of(rows)
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            stored = self._stored(rows[missing])
            scores[missing] = self._projection.weights @ terms(self._transformed(query), stored)
        return {NAME: scores}

    def whole_cosines(self, rows: Rows, others: Rows) -> Doubles:
        """Cosines (rows, others) of the projections of whole papers."""
        left = transformed(self._vectors.whole(others).astype(np.float32), self._projection.whole)
        right = self._vectors.whole(rows).astype(np.float64)
        cosines: Doubles = (right @ left.T) / self._lengths_of_whole(rows, right)[:, None]
        return cosines

    def likeness(self, papers: Rows, rows: Rows) -> Doubles:
        """Scores (papers, rows) by late interaction: each of the papers, all at rows, as a query."""
        ascending, places = np.unique(rows, return_inverse=True)
        stored, matrices = self._stored(ascending), self._projection
        whole = self._vectors.whole(papers).astype(np.float64)
        scores = np.empty((len(papers), len(ascending)))
        for number, row in enumerate(papers.tolist()):
            sentences = self._vectors.gather(np.array([row], np.int64)).vectors.astype(np.float64)
            query = TransformedQuery(
                transformed(sentences, matrices.sentences), transformed(whole[[number]], matrices.whole)
            )
            scores[number] = matrices.weights @ terms(query, stored)
        likeness: Doubles = scores[:, places]
        return likeness

    def _transformed(self, query: EncodedAspect) -> TransformedQuery:
        projection = self._projection
        return TransformedQuery(
            transformed(query.sentence_vectors, projection.sentences),
            transformed(query.whole_vector[None], projection.whole),
        )

    def _stored(self, rows: Rows) -> MeasuredPapers:
        block = self._vectors.gather(rows)
        sentences = block.vectors.astype(np.float64)
        unknown = np.isnan(self._sentence_lengths[block.rows])
        if unknown.any():
            self._sentence_lengths[block.rows[unknown]] = lengths(
                sentences[unknown], self._projection.sentences
            )
        whole = self._vectors.whole(rows).astype(np.float64)
        return MeasuredPapers(
            sentences,
            self._sentence_lengths[block.rows],
            whole,
            self._lengths_of_whole(rows, whole),
            block.starts,
        )

    def _lengths_of_whole(self, rows: Rows, vectors: NDArray[np.float64]) -> Doubles:
        unknown = np.isnan(self._whole_lengths[rows])
        if unknown.any():
            self._whole_lengths[rows[unknown]] = lengths(vectors[unknown], self._projection.whole)
        return self._whole_lengths[rows]
