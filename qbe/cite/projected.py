"""Late interaction between stored vectors of papers, projected for citation: pure functions on arrays.

The cosine of W q and W c is the inner product of (W^T W q) and c over the lengths of both projections, so
only the query is multiplied; of a stored vector one number is kept. All is in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.cite.links import Doubles, Ints
from qbe.index.reader import IndexReader
from qbe.index.scoring import Selection
from qbe.models.pooling import EncodedAspect
from qbe.search.first_stages import Candidates, Rows, Scores
from qbe.util.work import Workers, pause

NAME = "citation"
TERMS = ("forward", "whole", "backward")


class CitationSource:
    """Propose and score papers by late interaction of projected vectors, as a source of `FusedStage`.

    Lengths of projections are computed when a paper is first scored, and kept: 8 bytes a vector.
    """

    def __init__(self, reader: IndexReader, workers: Workers, projection: Projection) -> None:
        self._reader, self._workers, self._projection = reader, workers, projection
        self._sentence_lengths = np.full(len(reader.sentence_vectors), np.nan)
        self._whole_lengths = np.full(len(reader.whole_vectors), np.nan)

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        # The nearest of these at unit length; lengths of stored vectors' projections are neglected.
        matrix = self._projection.sentences
        turned = [transformed(query.sentence_vectors, matrix) for query in queries]
        vectors = [(each / np.linalg.norm(each, axis=1, keepdims=True)).astype(np.float32) for each in turned]
        nearest = self._reader.nearest(vectors, k, allowed)

        def best(number: int) -> Candidates:
            rows = nearest[number]
            scores = self.scores(queries[number], rows, None)[NAME]
            order = np.argsort(-scores, kind="stable")[:k]
            return Candidates(rows[order], scores[order])

        return list(self._workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        scores = np.full(len(rows), np.nan) if known is None else known.scores_of(rows)
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            vectors = query.sentence_vectors, query.whole_vector
            found = terms(self._projection, *vectors, self._stored(rows[missing]))
            scores[missing] = self._projection.weights @ found
        return {NAME: scores}

    def whole_cosines(self, rows: Rows, others: Rows) -> Doubles:
        """Return cosines (rows, others) of the projections of whole papers."""
        left = transformed(self._reader.whole(others).astype(np.float32), self._projection.whole)
        right = self._reader.whole(rows).astype(np.float64)
        cosines: Doubles = (right @ left.T) / self._lengths_of_whole(rows, right)[:, None]
        return cosines

    def likeness(self, papers: Rows, rows: Rows) -> Doubles:
        """Return scores (papers, rows) by late interaction, each of the papers as a query."""
        ascending, places = np.unique(rows, return_inverse=True)
        stored = self._stored(ascending)
        whole = self._reader.whole(papers).astype(np.float64)
        scores = np.empty((len(papers), len(ascending)))
        for number, row in enumerate(papers.tolist()):
            pause()
            sentences = self._reader.gather(np.array([row], np.int64)).vectors.astype(np.float64)
            found = terms(self._projection, sentences, whole[number], stored)
            scores[number] = self._projection.weights @ found
        likeness: Doubles = scores[:, places]
        return likeness

    def _stored(self, rows: Rows) -> MeasuredPapers:
        block, known = self._reader.gather(rows), self._sentence_lengths
        sentences = block.vectors.astype(np.float64)
        unknown = np.isnan(known[block.rows])
        known[block.rows[unknown]] = lengths(sentences[unknown], self._projection.sentences)
        whole = self._reader.whole(rows).astype(np.float64)
        whole_lengths = self._lengths_of_whole(rows, whole)
        return MeasuredPapers(sentences, known[block.rows], whole, whole_lengths, block.starts)

    def _lengths_of_whole(self, rows: Rows, vectors: NDArray[np.float64]) -> Doubles:
        unknown = np.isnan(self._whole_lengths[rows])
        self._whole_lengths[rows[unknown]] = lengths(vectors[unknown], self._projection.whole)
        return self._whole_lengths[rows]


class Projection(NamedTuple):
    """Matrices (dimension, dimension) for sentences and for whole papers, and weights of the TERMS."""

    sentences: Doubles
    whole: Doubles
    weights: Doubles


class MeasuredPapers(NamedTuple):
    """Hold stored vectors with lengths of their projections; sentences of paper i begin at ``starts[i]``."""

    sentences: Doubles
    sentence_lengths: Doubles
    whole: Doubles
    whole_lengths: Doubles
    starts: Ints


def lengths(vectors: NDArray[np.floating], matrix: Doubles) -> Doubles:
    """Return the lengths (n,) of the projections of vectors (n, dimension)."""
    projected: Doubles = np.linalg.norm(np.asarray(vectors, np.float64) @ matrix.T, axis=1)
    return np.maximum(projected, 1e-12)


def transformed(vectors: NDArray[np.floating], matrix: Doubles) -> Doubles:
    """Return vectors (n, dimension) whose inner products with stored ones, over the lengths of the
    projections of those, are the cosines of both projections.
    """
    vectors = np.asarray(vectors, np.float64)
    back: Doubles = (vectors @ matrix.T @ matrix) / lengths(vectors, matrix)[:, None]
    return back


def terms(
    projection: Projection,
    sentences: NDArray[np.floating],
    whole: NDArray[np.floating],
    papers: MeasuredPapers,
) -> Doubles:
    """Return the similarities (3, papers) of a query and papers, in the order of TERMS; vectors of the query
    are those of its sentences (n, dimension) and of the ``whole`` (dimension,).

    ``forward``: the mean over the query's sentences of each one's best cosine with a sentence of the paper
    (mean-max; Khattab and Zaharia, 2020, eq. 3, over sentences). ``whole``: the cosine of the whole papers.
    ``backward``: as forward, over the paper's sentences.
    """
    cosines = (transformed(sentences, projection.sentences) @ papers.sentences.T) / papers.sentence_lengths
    counts = np.diff(np.append(papers.starts, cosines.shape[1]))
    forward = np.maximum.reduceat(cosines, papers.starts, axis=1).mean(axis=0)
    backward = np.add.reduceat(cosines.max(axis=0), papers.starts) / counts
    alike = (papers.whole @ transformed(whole[None], projection.whole)[0]) / papers.whole_lengths
    return np.stack([forward, alike, backward])
