"""What a first stage and a source of scores offer, whatever they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qbe.index.rows import Selection
from qbe.models.pooling import EncodedAspect
from qbe.types import Hit, Pools

Rows = NDArray[np.int64]
Scores = NDArray[np.float64]


class FirstStage(Protocol):
    """Ranks the papers of an index, or of a pool, for aspects of queries."""

    @property
    def needs_vectors(self) -> bool:
        """Whether aspects must bring the vectors of their sentences."""

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """For each aspect the best ``k`` papers of the whole index or of its pool, best first, ties by id;
        the result of one does not depend on the others.

        ``allowed`` are the papers that may be found, at least one, in place of the whole index (None: all); a
        pool has none but them. The paper of the aspect is ranked like any other. ``explain`` adds the scores
        of the stage's components to each hit.
        """


class Candidates(NamedTuple):
    """Papers that a source proposes for an aspect: ``rows`` (n,), ascending, and the ``scores`` (n,) that the
    source computed in finding them; None where these are of no use later.
    """

    rows: Rows
    scores: Scores | None = None

    def scores_of(self, rows: Rows) -> Scores:
        """The scores (m,) of the papers at other ``rows``; NaN for those that are unknown.

        >>> Candidates(np.array([3, 7]), np.array([0.5, 0.25])).scores_of(np.array([7, 8])).tolist()
        [0.25, nan]
        """
        scores = np.full(len(rows), np.nan)
        if self.scores is not None and len(self.rows):
            places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
            known = self.rows[places] == rows
            scores[known] = self.scores[places[known]]
        return scores


def in_order(rows: Rows, scores: Scores) -> Candidates:
    """Papers with their scores (n,) as candidates.

    >>> in_order(np.array([7, 3]), np.array([0.5, 0.25])).scores.tolist()
    [0.25, 0.5]
    """
    order = np.argsort(rows)
    return Candidates(rows[order], scores[order])


class ScoreSource(Protocol):
    """Proposes candidates and scores any papers of an index by one or several named scores, to be fused."""

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        """For each aspect about ``k`` papers of the index, or of ``allowed``, the best by this source."""

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        """Scores (papers,) by name of the papers at these rows, ascending; a name that does not apply to the
        aspect is left out. ``known`` is what `batch_candidates` gave for the aspect, None where there was a
        pool. May be called by several threads at a time.
        """
