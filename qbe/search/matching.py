"""Scores of candidates from sentence similarities: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


_BLOCK = 4096
"""Vectors multiplied at a time: in double precision more would not stay in a processor's cache."""


def similarities(queries: Floats, vectors: NDArray[np.float16]) -> Floats:
    """Inner products (queries, vectors) of unit vectors (n, dimension) whose numbers are half precision.

    Products of such numbers are multiples of 2 ** -48, so that double precision holds their sums exactly:
    the result depends neither on the order of summation, which is the linear algebra library's affair
    and changes with its threads, nor on which other vectors are asked for.
    """
    left = queries.astype(np.float64)
    products = np.empty((len(queries), len(vectors)), np.float32)
    for first in range(0, len(vectors), _BLOCK):
        products[:, first : first + _BLOCK] = left @ vectors[first : first + _BLOCK].T.astype(np.float64)
    return products


def nearness(queries: Floats, vectors: NDArray[np.float16]) -> Floats:
    """Minus the Euclidean distances (queries, vectors) of vectors (n, dimension).

    Their squares are sums of products of multiples of 2 ** -16 (see `qbe.encode.pooling.stored`), which
    double precision holds exactly, so that the same is true as of `similarities`, and equal vectors have
    distance 0.
    """
    left = queries.astype(np.float64)
    lengths = (left * left).sum(axis=1)[:, None]
    found = np.empty((len(queries), len(vectors)), np.float32)
    for first in range(0, len(vectors), _BLOCK):
        right = vectors[first : first + _BLOCK].astype(np.float64)
        squares = lengths + (right * right).sum(axis=1) - 2 * (left @ right.T)
        found[:, first : first + _BLOCK] = -np.sqrt(np.maximum(squares, 0))
    return found


COMPARISONS: Mapping[str, Callable[[Floats, NDArray[np.float16]], Floats]] = {
    "cosine": similarities,
    "l2": nearness,
}
"""How vectors are compared, by the similarity of their index; more is better."""


class Candidates(NamedTuple):
    """The sentences of some papers, laid end to end.

    ``rows`` (sentences,) are positions among the index's sentences; paper i has those from starts[i]
    to starts[i + 1], or to the end for the last; every paper has at least one.
    """

    rows: Ints
    starts: Ints


def gather(papers: Ints, starts: Ints) -> Candidates:
    """The sentences of papers given by row, where ``starts`` (all papers + 1,) is the index's layout."""
    first, last = starts[papers], starts[papers + 1]
    counts = last - first
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    rows = np.arange(counts.sum()) + np.repeat(first - begins, counts)
    return Candidates(rows, begins)


def best_per_paper(similarities: Floats, starts: Ints) -> Floats:
    """Each query sentence's best similarity within each paper: (queries, sentences) -> (queries, papers)."""
    best: Floats = np.maximum.reduceat(similarities, starts, axis=1)
    return best


def restrict(similarities: Floats, starts: Ints, keep: NDArray[np.bool_]) -> Floats:
    """Similarities with the sentences not kept at minus infinity; a paper that would keep none keeps all."""
    counts = np.diff(np.append(starts, len(keep)))
    any_kept = np.repeat(np.logical_or.reduceat(keep, starts), counts)
    restricted: Floats = np.where(keep | ~any_kept, similarities, -np.inf).astype(np.float32)
    return restricted


def mean_max(best: Floats) -> Floats:
    """The mean over query sentences of each one's best match (queries, papers) -> (papers,).

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.
    """
    mean: Floats = best.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def single_max(best: Floats) -> Floats:
    """The best match of any query sentence: ASPIRE's single match (Mysore et al., 2022, section 3.2)."""
    maximum: Floats = best.max(axis=0)
    return maximum


MATCHES: Mapping[str, Callable[[Floats], Floats]] = {"mean-max": mean_max, "max": single_max}
