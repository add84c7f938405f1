"""Aspects of queries with their vectors, computed once and handed from stage to stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from qbe.query import Aspect

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.encode.encoder import PaperVectors

    Floats = NDArray[np.float32]


class EncodedAspect(NamedTuple):
    """An aspect of a query, its sentences, and their vectors where a stage needs them.

    ``positions`` are those of the aspect's sentences in its paper; ``sentences`` (positions, dimension) and
    ``whole`` (dimension,), float32, the vectors of these sentences and of the whole paper; None where the
    vectors were not needed.

    >>> from qbe.types import Facet, Paper, Sentence
    >>> paper = Paper("p1", "A title", (Sentence("It is slow."), Sentence("We route.", Facet.METHOD)))
    >>> EncodedAspect.of(Aspect(paper, Facet.METHOD)).positions
    (1,)
    """

    aspect: Aspect
    positions: tuple[int, ...]
    sentences: Floats | None = None
    whole: Floats | None = None

    @classmethod
    def of(cls, aspect: Aspect, vectors: PaperVectors | None = None) -> EncodedAspect:
        """An aspect with the ``vectors`` of its paper, if they are needed; raises what
        `qbe.query.Aspect.selected_positions` does.
        """
        positions = aspect.selected_positions()
        if vectors is None:
            return cls(aspect, positions)
        return cls(aspect, positions, vectors.sentences[list(positions)], vectors.whole)
