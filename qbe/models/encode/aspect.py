"""Aspects of queries with their vectors, computed once and handed from stage to stage."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from qbe.query import Aspect
from qbe.types import Facet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.models.encode.pooling import PaperVectors

    Floats = NDArray[np.float32]


class EncodedAspect(NamedTuple):
    """An aspect of a query, its sentences, and their vectors where a stage needs them.

    ``positions`` are those of the aspect's sentences in its paper; ``sentences`` (positions, dimension) and
    ``whole`` (dimension,), float32, the vectors of these sentences and of the whole paper; None where the
    vectors were not needed. ``background`` (n, dimension) float32, of an aspect that is the method or the
    result, are the vectors of the paper's background sentences, those of the aspect itself left out; None
    where there are none. ``vectors`` are those of all sentences of the paper.

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
        """An aspect with the ``vectors`` of its paper, if they are needed; raises what
        `qbe.query.Aspect.selected_positions` does.
        """
        positions = aspect.selected_positions()
        if vectors is None:
            return cls(aspect, positions)
        rest = _background_positions(aspect, positions)
        background = vectors.sentences[rest] if rest else None
        return cls(aspect, positions, vectors.sentences[list(positions)], vectors.whole, background, vectors)


def _background_positions(aspect: Aspect, positions: Collection[int]) -> list[int]:
    """The positions of a paper's background sentences beside the aspect's own, if it is another facet."""
    if aspect.facet in (None, Facet.BACKGROUND):
        return []
    of_background, _ = aspect.paper.facet_positions(Facet.BACKGROUND)
    return [position for position in of_background if position not in positions]
