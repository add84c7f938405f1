"""From the states of tokens to vectors, according to an encoder format."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models.encoder_format import CLS, COSINE, TITLE_ABSTRACT, EncoderFormat

Floats = NDArray[np.float32]

GRID = 2.0**16
"""Vectors that are compared by distance are multiples of 1 / GRID."""


class PaperVectors(NamedTuple):
    """Vectors of one paper, rounded as an index stores them (see `stored`).

    ``sentences`` is (sentences, dimension), ``whole`` is (dimension,); both float32. ``hook_values`` are the
    values of a hook, (sentences, width) float32; None without a hook.
    """

    sentences: Floats
    whole: Floats
    hook_values: Floats | None = None


def pooled(states: Floats, pooling: str) -> Floats:
    """The vector (dimension,) of a sentence from its states (tokens, dimension).

    >>> pooled(np.array([[1, 2], [3, 4]], np.float32), "mean").tolist()
    [2.0, 3.0]
    """
    vector: Floats = states[0] if pooling == CLS else states.mean(axis=0)
    return vector


class WholeVector:
    """The vector of a whole paper, from the states of its passes, which are added one by one.

    Only the first pass counts, as for encoders that cut a paper after one pass; with the mean and the layout
    ``title-abstract`` all passes count.

    >>> whole = WholeVector(EncoderFormat(similarity="l2"), dimension=2)
    >>> whole.add(np.array([[1, 2], [3, 4]], np.float32))
    >>> whole.add(np.array([[5, 6]], np.float32))
    >>> whole.vector().tolist()
    [3.0, 4.0]
    """

    def __init__(self, encoder_format: EncoderFormat, dimension: int) -> None:
        self._cls = encoder_format.whole == CLS
        self._all = encoder_format.layout == TITLE_ABSTRACT and not self._cls
        self._unit = encoder_format.similarity == COSINE
        self._total = np.zeros(dimension, np.float64)
        self._tokens = 0

    def add(self, states: Floats) -> None:
        """Add the states of the next pass, (tokens, dimension)."""
        pooled_states = states[:1] if self._cls else states
        self.add_sum(pooled_states.sum(axis=0, dtype=np.float64), len(pooled_states))

    def add_sum(self, total: NDArray[Any], tokens: int) -> None:
        """Add the next pass by the sum (dimension,) of the states that count, of so many tokens."""
        if self._tokens and not self._all:
            return
        self._total += total
        self._tokens += tokens

    def vector(self) -> Floats:
        """The vector (dimension,), float32; for cosine it is not scaled yet, see `stored`."""
        total = self._total if self._unit else self._total / self._tokens
        return total.astype(np.float32)


def stored(vectors: Floats, similarity: str) -> Floats:
    """Vectors (..., dimension) with the values that an index stores, as float32.

    For cosine they are scaled to unit length; all are rounded to half precision. Vectors that are compared by
    distance are rounded to multiples of 2 ** -16 as well, which only matters below 2 ** -6, where half
    precision is finer: products of their numbers are then multiples of 2 ** -32, and double precision holds
    sums of these exactly as long as vectors are shorter than 724, so that distances do not depend on the
    order of summation. Raises ModelError for numbers beyond half precision.

    >>> stored(np.array([[3, 4]], np.float32), "cosine").tolist()
    [[0.60009765625, 0.7998046875]]
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
