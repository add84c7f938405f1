"""Late interaction between stored vectors of papers, projected for citation: pure functions on arrays.

Vectors of an encoder say what a sentence is about; a linear projection, trained on who cites whom, says
which of it matters to a citation. It needs no text of candidates, and not even their projections: the cosine
of W q and W c is the inner product of (W^T W q) and c, over the lengths of both projections, so that only the
query is multiplied, and what is known of a stored vector beforehand is one number. All is computed in double
precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

TERMS = ("forward", "whole", "backward")
"""The similarities that a score is made of, in the order of their weights."""


class Projection(NamedTuple):
    """Matrices (dimension, dimension) for the vectors of sentences and of whole papers, and the weights of
    the TERMS, (3,); all float64.
    """

    sentences: Doubles
    whole: Doubles
    weights: Doubles


class TransformedQuery(NamedTuple):
    """A query's vectors, `transformed`: ``sentences`` (n, dimension) and ``whole`` (1, dimension)."""

    sentences: Doubles
    whole: Doubles


class MeasuredPapers(NamedTuple):
    """Stored vectors of some papers with the lengths of their projections.

    ``sentences`` (sentences, dimension) and ``sentence_lengths`` (sentences,), those of paper i from
    ``starts[i]`` on; ``whole`` (papers, dimension) and ``whole_lengths`` (papers,).
    """

    sentences: Doubles
    sentence_lengths: Doubles
    whole: Doubles
    whole_lengths: Doubles
    starts: Ints


def lengths(vectors: NDArray[np.floating], matrix: Doubles) -> Doubles:
    """The lengths (n,) of the projections of vectors (n, dimension).

    >>> lengths(np.array([[1.0, 1.0]]), np.diag([3.0, 4.0])).tolist()
    [5.0]
    """
    projected: Doubles = np.linalg.norm(np.asarray(vectors, np.float64) @ matrix.T, axis=1)
    return np.maximum(projected, 1e-12)


def transformed(vectors: NDArray[np.floating], matrix: Doubles) -> Doubles:
    """Vectors (n, dimension) whose inner products with stored ones, over the lengths of these ones'
    projections, are the cosines of both projections.

    >>> transformed(np.array([[1.0, 0.0]]), np.diag([2.0, 1.0])).tolist()
    [[2.0, 0.0]]
    """
    vectors = np.asarray(vectors, np.float64)
    back: Doubles = (vectors @ matrix.T @ matrix) / lengths(vectors, matrix)[:, None]
    return back


def terms(query: TransformedQuery, papers: MeasuredPapers) -> Doubles:
    """The similarities (3, papers) of a query and papers, in the order of TERMS.

    ``forward``: the mean over the query's sentences of each one's best cosine with a sentence of the paper
    (mean-max; Khattab and Zaharia, 2020, eq. 3, over sentences). ``whole``: the cosine of the whole papers.
    ``backward``: as forward, over the paper's sentences.

    >>> ones, axes = np.ones(2), np.eye(2)
    >>> papers = MeasuredPapers(axes, ones, axes, ones, np.array([0, 1]))
    >>> terms(TransformedQuery(axes, axes[:1]), papers).tolist()
    [[0.5, 0.5], [1.0, 0.0], [1.0, 1.0]]
    """
    cosines = (query.sentences @ papers.sentences.T) / papers.sentence_lengths
    counts = np.diff(np.append(papers.starts, cosines.shape[1]))
    forward = np.maximum.reduceat(cosines, papers.starts, axis=1).mean(axis=0)
    backward = np.add.reduceat(cosines.max(axis=0), papers.starts) / counts
    return np.stack([forward, (papers.whole @ query.whole[0]) / papers.whole_lengths, backward])


def search_vectors(sentences: Doubles) -> NDArray[np.float32]:
    """Turned vectors (n, dimension) at unit length, float32: their nearest stored vectors are about those
    whose projections are nearest; the lengths of these projections are neglected.

    >>> search_vectors(np.array([[3.0, 4.0]])).round(2).tolist()
    [[0.6..., 0.8...]]
    """
    unit: NDArray[np.float32] = (sentences / np.linalg.norm(sentences, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit
