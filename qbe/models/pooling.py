"""From token states to vectors, and the vectors of papers and of aspects of queries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models.formats import CLS, COSINE, TITLE_ABSTRACT, EncoderFormat
from qbe.query import Aspect
from qbe.types import Facet

Floats = NDArray[np.float32]

GRID = 2.0**16
"""Vectors that are compared by distance are multiples of 1 / GRID."""


class PaperVectors(NamedTuple):
    """Vectors of one paper, rounded as an index stores them (see `stored`).

    ``sentences`` is (sentences, dimension), ``whole`` is (dimension,); both float32. ``hook_values`` are the
    values of a hook, (sentences, width) float32.
    """

    sentences: Floats
    whole: Floats
    hook_values: Floats | None = None


class EncodedAspect(NamedTuple):
    """An aspect of a query with its vectors, computed once and handed from stage to stage.

    ``positions`` are those of the aspect's sentences in its paper. ``sentences`` (positions, dimension) and
    ``whole`` (dimension,), float32, are None where no stage needs vectors. ``background`` (n, dimension)
    float32, of an aspect that is the method or the result, are the vectors of the paper's background
    sentences without the aspect's own; None where there are none. ``vectors`` are those of all sentences.

    >>> from qbe.types import Facet, Paper, Sentence
    >>> paper = Paper("p1", "A title", (Sentence("It is slow."), Sentence("We route.", Facet.METHOD)))
    >>> EncodedAspect.of(Aspect(paper, Facet.METHOD)).positions
    (1,)
    """

    aspect: Aspect
    positions: tuple[int, ...]
    sentences: Floats | None = None
    whole: Floats | None = None
    background: Floats | None = None
    vectors: PaperVectors | None = None

    @property
    def sentence_vectors(self) -> Floats:
        """``sentences``, for stages whose `needs_vectors` had them computed."""
        assert self.sentences is not None
        return self.sentences

    @property
    def whole_vector(self) -> Floats:
        """``whole``, for stages whose `needs_vectors` had it computed."""
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


def pooled(states: Floats, pooling: str) -> Floats:
    """Pool the states (tokens, dimension) of a sentence to its vector (dimension,)."""
    vector: Floats = states[0] if pooling == CLS else states.mean(axis=0)
    return vector


class WholeVector:
    """The vector of a whole paper, from the states of its passes, which are added one by one.

    Only the first pass counts, as for encoders that cut a paper after one pass; with the mean and the layout
    ``title-abstract`` all passes count.
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
        """Add the next pass by the sum (dimension,) of the states that count, and their number."""
        if self._tokens and not self._all:
            return
        self._total += total
        self._tokens += tokens

    def vector(self) -> Floats:
        """Return the vector (dimension,), float32; for cosine it is not scaled yet, see `stored`."""
        total = self._total if self._unit else self._total / self._tokens
        return total.astype(np.float32)


def stored(vectors: Floats, similarity: str) -> Floats:
    """Round vectors (..., dimension) to the values that an index stores, as float32.

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
