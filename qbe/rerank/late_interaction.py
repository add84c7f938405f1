"""Late interaction between a query and a candidate whose tokens attended to the query's.

Products are computed in double precision and rounded to single, so that no digit of a score depends on the
order of sums, which numpy's BLAS chooses by its number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

FEATURES = ("sentences", "facet", "whole", "mean", "tokens")
"""The similarities that a score is made of, in the order of their weights."""


class Vectors(NamedTuple):
    """A paper as a facet's model encodes it; all rows are unit vectors, float32.

    ``sentences`` (sentences, dimension); ``mean`` (dimension,) of the facet's sentences together; ``whole``
    (dimension,) of the whole paper; ``tokens`` (tokens, dimension). ``shares`` (tokens,) says how much each
    token counts as a query's: they sum to 1 over the tokens of the facet's sentences and are 0 elsewhere.
    ``facet`` (sentences,) bool marks the facet's sentences.
    """

    sentences: Floats
    mean: Floats
    whole: Floats
    tokens: Floats
    shares: Floats
    facet: NDArray[np.bool_]


def similarities(query: Vectors, candidate: Vectors) -> Floats:
    """Cosines (query's sentences of the facet, candidate's sentences) float32.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> paper = Vectors(axes, axes[0], axes[0], axes, np.float32([1, 0]), np.array([True, False]))
    >>> similarities(paper, paper).tolist()
    [[1.0, 0.0]]
    """
    return _products(query.sentences[query.facet], candidate.sentences)


def features(query: Vectors, candidate: Vectors) -> Floats:
    """The similarities of two papers, in the order of FEATURES, (5,) float32.

    ``sentences``: the mean over the query's sentences of the facet of each one's best cosine with a
    sentence of the candidate (mean-max; Khattab and Zaharia, 2020, eq. 3, over sentences). ``facet``: the
    same with the candidate's sentences of the facet alone. ``whole``: the cosine of the papers. ``mean``:
    the cosine of the facet's sentences, averaged. ``tokens``: each token of the query's facet's best cosine
    with a token of the candidate, averaged by the tokens' shares.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> query = Vectors(axes, axes[0], axes[0], axes, np.float32([1, 0]), np.array([True, False]))
    >>> candidate = query._replace(mean=axes[1], facet=np.array([False, True]))
    >>> dict(zip(FEATURES, features(query, candidate).tolist()))
    {'sentences': 1.0, 'facet': 0.0, 'whole': 1.0, 'mean': 0.0, 'tokens': 1.0}
    """
    cosines = similarities(query, candidate)
    counted = query.shares > 0
    nearest = _products(query.tokens[counted], candidate.tokens).max(axis=1)
    return np.array(
        [
            cosines.max(axis=1).mean(dtype=np.float64),
            cosines[:, candidate.facet].max(axis=1).mean(dtype=np.float64),
            _products(query.whole, candidate.whole),
            _products(query.mean, candidate.mean),
            _products(nearest, query.shares[counted]),
        ],
        dtype=np.float32,
    )


def score(query: Vectors, candidate: Vectors, weights: Sequence[float]) -> float:
    """The sum of the features times ``weights``, which are in the order of FEATURES; in double precision.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> query = Vectors(axes, axes[0], axes[0], axes, np.float32([1, 0]), np.array([True, False]))
    >>> candidate = query._replace(mean=axes[1], facet=np.array([False, True]))  # features 1, 0, 1, 0, 1
    >>> score(query, candidate, [0.5, 1.0, 2.0, 1.0, 0.25])
    2.75
    """
    return float(features(query, candidate).astype(np.float64) @ np.asarray(weights, np.float64))


def _products(left: Floats, right: Floats) -> Floats:
    """The inner products of the rows of two arrays."""
    products = left.astype(np.float64) @ right.astype(np.float64).T
    return products.astype(np.float32)
