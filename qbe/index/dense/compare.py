"""Exact comparisons of query vectors with stored vectors: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.stored import Half, Quantized, Vectors

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Numbers = NDArray[Any]

_BLOCK = 256
"""Vectors multiplied at a time: in double precision more would not stay in a processor's nearest cache."""

_HALF_TO_SINGLE = 2.0**112
"""The ratio of numbers whose bits are the same once moved from half to single precision's place."""


def similarities(queries: Floats, vectors: Vectors) -> Floats:
    """Inner products (queries, vectors) of unit vectors (n, dimension) in any form that is stored, as
    float32.

    Stored numbers are multiples of 2 ** -24 (see `qbe.index.dense.stored.quantized`), and so are a query's.
    Products of such numbers are multiples of 2 ** -48, so that double precision holds their sums exactly:
    the result depends neither on the order of summation, which the linear algebra library chooses and
    which changes with its threads, nor on which other vectors are compared.

    >>> similarities(np.array([[1, 0]], np.float32), np.array([[0.6, 0.8], [0, 1]], np.float16)).tolist()
    [[0.60009765625, 0.0]]
    """
    left = queries.astype(np.float64)
    products = np.empty((len(queries), len(vectors)), np.float32)
    for first in range(0, len(vectors), _BLOCK):
        numbers, factors = _parts(vectors[first : first + _BLOCK])
        products[:, first : first + _BLOCK] = (left @ numbers.T) * factors
    return products


def nearness(queries: Floats, vectors: Vectors) -> Floats:
    """Minus the Euclidean distances (queries, vectors) of vectors (n, dimension).

    Their squares are sums of products of multiples of 2 ** -16 (see `qbe.encode.pooling.stored`), which
    double precision holds exactly, so that the same is true as of `similarities`, and equal vectors have
    distance 0.

    >>> nearness(np.array([[0, 0]], np.float32), np.array([[3, 4], [0, 2]], np.float16)).tolist()
    [[-5.0, -2.0]]
    """
    left = queries.astype(np.float64)
    lengths = (left * left).sum(axis=1)
    near = np.empty((len(queries), len(vectors)), np.float32)
    for first in range(0, len(vectors), _BLOCK):
        numbers, factors = _parts(vectors[first : first + _BLOCK])
        right = np.einsum("ij,ij->i", numbers, numbers) * factors * factors
        near[:, first : first + _BLOCK] = negative_distances((left @ numbers.T) * factors, lengths, right)
    return near


def negative_distances(products: Numbers, squares: Numbers, other_squares: Numbers) -> Numbers:
    """Minus the Euclidean distances (m, n) from inner products (m, n) and the squared lengths (m,) and (n,)
    of both sides, in their precision.

    >>> negative_distances(np.array([[0.0]]), np.array([9.0]), np.array([16.0])).tolist()
    [[-5.0]]
    """
    distances: Numbers = np.sqrt(np.maximum(squares[:, None] + other_squares - 2 * products, 0))
    return -distances


COMPARISONS: Mapping[str, Callable[[Floats, Vectors], Floats]] = {
    "cosine": similarities,
    "l2": nearness,
}
"""How vectors are compared, by the similarity of their index; more is better."""


def _parts(vectors: Half | Floats | Quantized) -> tuple[Doubles, Doubles | float]:
    """Vectors as numbers (n, dimension) and factors, one for all or one each (n,), to multiply them with.

    Stored forms become doubles in passes that processors do many numbers at a time, unlike numpy's own way
    from half precision. There the bits are moved to where single precision has them: sign and numbers are
    right, the exponent is too small by as much for all, the smallest numbers included.
    """
    if isinstance(vectors, Quantized):
        return vectors.codes.astype(np.float64), vectors.scales.astype(np.float64)
    if vectors.dtype != np.float16:  # of several segments, the same numbers multiplied out
        return vectors.astype(np.float64), 1.0
    return _shifted(vectors).astype(np.float64), _HALF_TO_SINGLE


def _shifted(vectors: Half | Floats) -> Floats:
    bits = vectors.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # all but the copies of the sign that the wider type has put there
    return bits.view(np.float32)
