"""Scores of papers from similarities of sentences: pure functions on arrays.

In all of them ``starts`` (papers,) says where the sentences of each paper begin, as in
`qbe.index.dense.vectors.SentenceBlock`; every paper has at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.stored import Half, Quantized, Vectors
from qbe.index.rows import Rows

Floats = NDArray[np.float32]


def best_per_paper(similarities: Floats, starts: Rows) -> Floats:
    """Each query sentence's best similarity within each paper: (queries, sentences) -> (queries, papers).

    >>> best_per_paper(np.array([[0.1, 0.9, 0.5]], np.float32), np.array([0, 2])).tolist()
    [[0.8999999761581421, 0.5]]
    """
    best: Floats = np.maximum.reduceat(similarities, starts, axis=1)
    return best


def restrict(similarities: Floats, starts: Rows, keep: NDArray[np.bool_]) -> Floats:
    """Similarities (queries, sentences) with minus infinity where ``keep`` (sentences,) is false; a paper of
    which no sentence would be kept keeps all.

    >>> keep = np.array([True, False, False])
    >>> restrict(np.array([[0.25, 0.75, 0.5]], np.float32), np.array([0, 2]), keep).tolist()
    [[0.25, -inf, 0.5]]
    """
    restricted: Floats = np.where(kept_or_all(keep, starts), similarities, -np.inf).astype(np.float32)
    return restricted


def kept_or_all(keep: NDArray[np.bool_], starts: Rows) -> NDArray[np.bool_]:
    """A mask (sentences,) of sentences; all those of a paper of which none is kept.

    >>> kept_or_all(np.array([True, False, False]), np.array([0, 2])).tolist()
    [True, False, True]
    """
    counts = np.diff(np.append(starts, len(keep)))
    any_kept = np.repeat(np.logical_or.reduceat(keep, starts), counts)
    kept: NDArray[np.bool_] = keep | ~any_kept
    return kept


def mean_max(best: Floats) -> Floats:
    """The mean over query sentences of each one's best match (queries, papers) -> (papers,).

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.

    >>> mean_max(np.array([[0.5, 1.0], [0.25, 0.0]], np.float32)).tolist()
    [0.375, 0.5]
    """
    mean: Floats = best.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


TOLERANCE = 1e-3
"""By how much FAISS's similarities of unit vectors may differ from exact ones: numbers that were stored in
bytes are rounded to half precision (2 ** -11 of their size), sums to single precision."""


class MayBeBest(NamedTuple):
    """``rows`` (papers,) int64, ascending, of papers that can be among the best; whether they ``are_all``, or
    papers of which no sentence was looked up can be, too.
    """

    rows: Rows
    are_all: bool


def may_be_best(similarities: Floats, papers: Rows, total: int, k: int) -> MayBeBest:
    """The papers that can be among the best ``k`` by `mean_max`, out of those that have one of the nearest
    sentences.

    ``similarities`` (queries, count) are those of each query sentence's nearest sentences, best first, up to
    TOLERANCE, and ``papers`` (queries, count) int64 the rows of their papers, of which there are ``total``.
    Where none of a paper's sentences is among the nearest of a query sentence, its best similarity there lies
    between -1 and that of the last one. A paper whose score can be no better than ``k`` others' scores are
    at least is left out (the threshold algorithm of Fagin et al., 2001, with one round).

    >>> similarities = np.array([[0.9, 0.5, 0.3], [0.8, 0.7, 0.3]], np.float32)
    >>> papers = np.array([[4, 1, 4], [4, 1, 0]])
    >>> may_be_best(similarities, papers, 6, 1)
    MayBeBest(rows=array([4]), are_all=True)
    >>> may_be_best(similarities, papers, 6, 3)
    MayBeBest(rows=array([0, 1, 4]), are_all=False)
    """
    best = np.full((len(papers), total), -np.inf, np.float32)
    places = papers + total * np.arange(len(papers))[:, None]
    np.maximum.at(best.reshape(-1), places.reshape(-1), similarities.reshape(-1))
    rows = np.flatnonzero(best.max(axis=0) > -np.inf)
    best, farthest = best[:, rows], similarities[:, -1:]
    if len(rows) < k:
        return MayBeBest(rows, are_all=False)
    least, most = mean_max(np.maximum(best, -1)), mean_max(np.maximum(best, farthest))
    enough = np.partition(least, len(rows) - k)[len(rows) - k] - 2 * TOLERANCE
    return MayBeBest(rows[most >= enough], bool(mean_max(farthest)[0] < enough))


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

    Their squares are sums of products of multiples of 2 ** -16 (see `qbe.models.pooling.stored`), which
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
