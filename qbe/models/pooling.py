"""From token states to vectors, and the vectors of papers and of aspects of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models.formats import CLS, COSINE, TITLE_ABSTRACT, EncoderFormat
from qbe.query import Aspect
from qbe.types import Facet

Floats = NDArray[np.float32]

GRID = 2.0**16  # vectors that are compared by distance are multiples of 1 / GRID


class PaperVectors(NamedTuple):
    """Float32 vectors of a paper's sentences and of the ``whole``, rounded as an index has them."""

    sentences: Floats
    whole: Floats
    hook_values: Floats | None = None


class EncodedAspect(NamedTuple):
    """An aspect of a query with its vectors, computed once; None where no stage needs vectors.

    ``sentences`` (positions, dimension) are those of its ``positions``, ``background`` (n, dimension), of a
    method or result aspect, those of the paper's other background sentences, ``vectors`` those of all.
    """

    aspect: Aspect
    positions: tuple[int, ...]
    sentences: Floats | None = None
    whole: Floats | None = None
    background: Floats | None = None
    vectors: PaperVectors | None = None

    @property
    def sentence_vectors(self) -> Floats:
        assert self.sentences is not None
        return self.sentences

    @property
    def whole_vector(self) -> Floats:
        assert self.whole is not None
        return self.whole

    @classmethod
    def of(cls, aspect: Aspect, vectors: PaperVectors | None = None) -> EncodedAspect:
        """Combine an aspect with its paper's ``vectors``; raises as `Aspect.selected_positions` does."""
        positions = aspect.selected_positions()
        if vectors is None:
            return cls(aspect, positions)
        background = None
        if aspect.facet not in (None, Facet.BACKGROUND):
            of_background, _ = aspect.paper.facet_positions(Facet.BACKGROUND)
            rest = [position for position in of_background if position not in positions]
            background = vectors.sentences[rest] if rest else None
        return cls(aspect, positions, vectors.sentences[list(positions)], vectors.whole, background, vectors)


def whole_vector(passes: Sequence[tuple[NDArray[Any], int]], encoder_format: EncoderFormat) -> Floats:
    """Return a paper's vector, unscaled, from sums and counts of the states of its first pass, or of all."""
    if encoder_format.layout != TITLE_ABSTRACT or encoder_format.whole == CLS:
        passes = passes[:1]
    total = np.zeros(len(passes[0][0]), np.float64)
    for states, _ in passes:
        total += states
    if encoder_format.similarity != COSINE:
        total /= sum(tokens for _, tokens in passes)
    return total.astype(np.float32)


def stored(vectors: Floats, similarity: str) -> Floats:
    """Round vectors (..., dimension) to half precision, for cosine at unit length, as float32.

    Vectors that are compared by distance are multiples of 2 ** -16 as well, so that double precision holds
    sums of their products exactly (up to a length of 724), in any order. Raises ModelError beyond half
    precision.

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
