"""From the states of tokens to vectors, as a convention has it."""

from __future__ import annotations

import numpy as np

from qbe.encode.reader import Floats
from qbe.errors import ModelError
from qbe.models.encoder_format import CLS, COSINE, TITLE_ABSTRACT, EncoderFormat

GRID = 2.0**16
"""Vectors that are compared by distance are multiples of 1 / GRID."""


def pooled(states: Floats, pooling: str) -> Floats:
    """The vector (dimension,) of a sentence from its states (tokens, dimension)."""
    vector: Floats = states[0] if pooling == CLS else states.mean(axis=0)
    return vector


class WholeVector:
    """The vector of a whole paper, out of the states of its passes, one after the other.

    The first pass counts, as encoders that read a paper in one pass cut what is beyond it; only the mean with
    the layout ``title-abstract`` is that of all passes.
    """

    def __init__(self, convention: EncoderFormat, dimension: int) -> None:
        self._cls = convention.whole == CLS
        self._all = convention.layout == TITLE_ABSTRACT and not self._cls
        self._unit = convention.similarity == COSINE
        self._total = np.zeros(dimension, np.float64)
        self._tokens = 0

    def add(self, states: Floats) -> None:
        """One more pass, (tokens, dimension)."""
        if self._tokens and not self._all:
            return
        found = states[:1] if self._cls else states
        self._total += found.sum(axis=0, dtype=np.float64)
        self._tokens += len(found)

    def vector(self) -> Floats:
        """The vector (dimension,); of any length where vectors are scaled to unit length anyway."""
        total = self._total if self._unit else self._total / self._tokens
        return total.astype(np.float32)


def stored(vectors: Floats, similarity: str) -> Floats:
    """Vectors (..., dimension) with the values that an index stores, in single precision.

    By cosine they have unit length, by distance the length that they have; rounded to half precision. The
    latter are also multiples of 2 ** -16, which half precision has of itself from 2 ** -6 on: so products of
    their numbers are multiples of 2 ** -32, and double precision holds sums of these exactly as long as
    vectors are shorter than 724 (see `qbe.search.matching.nearness`). Raises ModelError for numbers beyond
    half precision.
    """
    if similarity == COSINE:
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        scaled = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    else:
        scaled = np.round(vectors.astype(np.float64) * GRID) / GRID
    with np.errstate(over="ignore"):
        rounded: Floats = scaled.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ModelError(
            f"expected vectors of numbers up to {np.finfo(np.float16).max}, as half precision holds them, "
            "found others; give another encoder"
        )
    return rounded
