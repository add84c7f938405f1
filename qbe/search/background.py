"""The background penalty: what a paper shares with the query's background lowers its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.index.dense.scoring import best_per_paper, mean_max
from qbe.index.reader import IndexReader
from qbe.search.contracts import Rows, Scores
from qbe.search.fusion import penalized
from qbe.types import Facet

Floats = NDArray[np.float32]

EXPONENTS: Mapping[Facet, int] = {Facet.METHOD: 1, Facet.RESULT: 3}
"""The power of the penalty that applies to each facet. What was found depends on the problem more than how it
was found: the default is close to 0 for results, and a penalty of 1 is the same for both."""


class Penalized(NamedTuple):
    """Scores (papers,), and the similarity to the query's ``background`` (papers,) that lowered them; None
    where nothing did.
    """

    scores: Scores
    background: Scores | None


class BackgroundPenalty:
    """Subtracts the normalized background similarity (negative feedback on scores, after Rocchio, 1971).

    Papers that are similar in method or result are mostly similar in their problem too, and so are sentence
    vectors in the context of their abstracts: scores for a method or a result follow the problem where the
    two disagree. A score becomes ``z(score) - strength * z(background)``, both z-normalized over the papers
    that are scored, where ``background`` is the mean-max match of the query's background sentences with all
    sentences of the paper, by stored vectors. ``strength`` is the penalty for a method, and its third power
    for a result (EXPONENTS).

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     rows = np.array([reader.papers.row("s031"), reader.papers.row("s051")])
    ...     scores, background = BackgroundPenalty(reader, 0.25).apply(query, rows, np.array([0.5, 0.75]))
    >>> background.round(2).tolist()
    [0.52, 0.27]
    >>> scores.tolist()
    [-1.25, 1.25]
    """

    def __init__(self, reader: IndexReader, penalty: float) -> None:
        """``penalty`` from 0 (scores as they are) to 1."""
        self._reader, self._penalty = reader, penalty

    def apply(self, query: EncodedAspect, rows: Rows, scores: Scores) -> Penalized:
        """The ``scores`` (papers,) of the papers at these rows, less the penalty.

        They stay as they are for other aspects than method and result, and for papers without other
        background sentences.
        """
        strength = self._strength(query)
        if not strength or query.background is None:
            return Penalized(scores, None)
        background = self._background(query.background, rows)
        return Penalized(penalized(scores, background, strength), background)

    def _background(self, sentences: Floats, rows: Rows) -> Scores:
        """The match (papers,) of the query's background ``sentences`` with the papers at these rows."""
        if not len(rows):
            return np.zeros(0)
        compared = self._reader.vector_store.compare(sentences, rows)
        return mean_max(best_per_paper(compared.similarities, compared.starts)).astype(np.float64)

    def _strength(self, query: EncodedAspect) -> float:
        facet = query.aspect.facet
        exponent = None if facet is None else EXPONENTS.get(facet)
        return 0.0 if exponent is None else float(self._penalty**exponent)
