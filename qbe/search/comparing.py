"""Several aspects of a query compared with the same papers at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.index.dense.contracts import Compared, Comparer
from qbe.search.contracts import Rows

Floats = NDArray[np.float32]


class ComparedAspects(NamedTuple):
    """Papers compared with the sentences of several aspects: ``together`` with all of them, and the rows of
    its similarities that each aspect has, ``by_aspect``, each (sentences of the aspect, sentences).
    """

    together: Compared
    by_aspect: Sequence[Floats]


def compare_aspects(
    comparer: Comparer, aspects: Sequence[EncodedAspect], rows: Rows, whole: Floats | None = None
) -> ComparedAspects:
    """Compare the sentences of at least one aspect, and a ``whole`` paper (dimension,), with the papers at
    ``rows``, which are in ascending order.

    >>> from qbe import Facet
    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> aspects = [EncodedAspect.of(Aspect(paper, facet), index.vectors(paper)) for facet in Facet]
    >>> with index.reading() as reader:
    ...     compared = compare_aspects(reader.comparer, aspects, np.array([reader.papers.row("s051")]))
    >>> [len(similarities) for similarities in compared.by_aspect] == [len(a.positions) for a in aspects]
    True
    """
    vectors = [aspect.sentence_vectors for aspect in aspects]
    together = comparer.compare(np.concatenate(vectors), rows, whole)
    ends = np.cumsum([len(each) for each in vectors])[:-1]
    return ComparedAspects(together, np.split(together.similarities, ends))
