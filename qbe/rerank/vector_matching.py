"""Rerankers that match stored sentence vectors: no model reads the papers anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.selection import selected_positions
from qbe.errors import UsageError
from qbe.models.encoder_format import COSINE, L2, SIMILARITIES
from qbe.parallel import Memo
from qbe.query import Query
from qbe.rerank.entropic_transport import REGULARIZATION
from qbe.rerank.matchings import attention, cells, mean_max, single_match, transport
from qbe.rerank.reranker import Asked, RerankScore
from qbe.rerank.semidual import Bools, Doubles
from qbe.types import Match, Paper, TransportEntry

MATCHINGS = ("transport", "attention", "single-match", "mean-max")
"""Names of the matchings; see `qbe.rerank.matchings`."""

PART_TEMPERATURE, WHOLE_TEMPERATURE = 0.5, 5000.0
"""Of transport's marginals, for queries that are part of an abstract and for whole ones: ASPIRE's (its
appendix), for vectors that are not of unit length."""

NEGLIGIBLE = 1e-6
"""Masses below this are left out of a plan."""

VectorSource = Callable[[Paper], NDArray[np.float32]]
"""Gives the vectors of all sentences of a paper, (sentences, dimension)."""


class VectorMatching:
    """Scores the vectors of a query's sentences against those of all sentences of a candidate.

    Of a judgement, ``match`` is the pair of sentences that drove the score, with its cosine: for transport
    the one with the largest mass times cosine, for mean-max the best, else the closest. Transport gives its
    plan too.
    """

    def __init__(
        self,
        name: str,
        vectors: VectorSource,
        *,
        temperature: float | None = None,
        regularization: float = REGULARIZATION,
        similarity: str = COSINE,
        threads: int = 1,
    ) -> None:
        """Match by one of MATCHINGS; ``vectors`` may be ``lambda paper: index.vectors(paper).sentences``.

        ``similarity`` is that of the vectors (``index.similarity``): mean-max takes best cosines, or with
        ``l2`` least distances; the others go by distance in any case.
        ``temperature`` and ``regularization`` (lambda) belong to transport; the temperature is by default
        0.5 for a query by facet or sentences, and 5000 for a whole abstract. Scores of vectors in half
        precision, as an index has them, depend neither on the linear algebra library nor on ``threads``.
        Raises UsageError for another name or similarity, and for a temperature or regularization not above 0.
        """
        for what, known, given in (("matching", MATCHINGS, name), ("similarity", SIMILARITIES, similarity)):
            if given not in known:
                raise UsageError(f"expected a {what} of {', '.join(known)}, found {given!r}")
        for option, value in (("temperature", temperature), ("regularization", regularization)):
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"expected a {option} above 0, found {value:g}")
        self.name = name
        self._vectors = vectors
        self._temperature, self._regularization, self._threads = temperature, regularization, threads
        self._similarity = similarity

    def score(
        self, query: Query, papers: Sequence[Paper], progress: Callable[[int], None] | None = None
    ) -> list[RerankScore]:
        """See `qbe.rerank.reranker.Reranker.score`."""
        return self.batch_score([(query, papers)], progress)[0]

    def batch_score(
        self, asked: Asked, progress: Callable[[int], None] | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        vectors = Memo(self._vectors)
        return [self._judge(query, papers, vectors, progress) for query, papers in asked]

    def _judge(
        self,
        query: Query,
        papers: Sequence[Paper],
        vectors: VectorSource,
        progress: Callable[[int], None] | None,
    ) -> list[RerankScore]:
        positions = selected_positions(query)
        if not papers:
            return []
        asked = vectors(query.paper)[list(positions)].astype(np.float64)
        compared = _together([_compare(asked, vectors(paper)) for paper in papers])
        scored = self._score(compared, self._temperature_for(query))
        judgements = []
        for pair, score in enumerate(scored.scores.tolist()):
            row, column = np.unravel_index(int(scored.weights[pair].argmax()), scored.weights[pair].shape)
            cosine = float(compared.cosines[pair, row, column])
            match = Match(positions[row], int(column), cosine)
            plan = () if scored.plans is None else _plan(scored.plans[pair], positions)
            judgements.append(RerankScore(score, match, plan))
            if progress:
                progress(1)
        return judgements

    def _temperature_for(self, query: Query) -> float:
        if self._temperature is not None:
            return self._temperature
        whole = query.facet is None and query.positions is None
        return WHOLE_TEMPERATURE if whole else PART_TEMPERATURE

    def _score(self, compared: _Compared, temperature: float) -> _Scored:
        distances, cosines, rows, columns = compared
        if self.name == "transport":
            found = transport(distances, rows, columns, temperature, self._regularization, self._threads)
            weights, plans = found.plans * cosines, found.plans
            return _Scored(found.scores, _inside(weights, rows, columns), plans)
        if self.name == "mean-max":
            near = -distances if self._similarity == L2 else cosines
            return _Scored(mean_max(near, rows, columns), _inside(near, rows, columns))
        score = attention if self.name == "attention" else single_match
        return _Scored(score(distances, rows, columns), _inside(-distances, rows, columns))


class _Compared(NamedTuple):
    """Distances and cosines (pairs, m, n) float64 of sentences, and which are no padding, (pairs, m or n)."""

    distances: Doubles
    cosines: Doubles
    rows: Bools
    columns: Bools


class _Scored(NamedTuple):
    """Scores (pairs,), each pair of sentences' part in them (pairs, m, n), and plans (pairs, m, n)."""

    scores: Doubles
    weights: Doubles
    plans: Doubles | None = None


def _compare(asked: Doubles, vectors: NDArray[np.float32]) -> tuple[Doubles, Doubles]:
    """Euclidean distances and cosines (m, n) of vectors (m, dimension) and (n, dimension).

    Double precision holds products of an index's half-precision numbers and their sums exactly (see
    `qbe.search.matching.similarities` and ``nearness``), so that no order of summation shows, and equal
    vectors have distance 0.
    """
    found = vectors.astype(np.float64)
    products = asked @ found.T
    squares, others = ((side * side).sum(axis=1) for side in (asked, found))
    distances = np.sqrt(np.maximum(squares[:, None] + others - 2 * products, 0))
    lengths = np.sqrt(squares)[:, None] * np.sqrt(others)
    cosines = np.zeros_like(products)
    np.divide(products, lengths, out=cosines, where=lengths > 0)
    return distances, cosines


def _together(compared: Sequence[tuple[Doubles, Doubles]]) -> _Compared:
    """Matrices of as many rows and any number of columns, padded with zeros to the most columns."""
    counts = np.array([distances.shape[1] for distances, _ in compared])
    m, n = len(compared[0][0]), int(counts.max())
    both = np.zeros((2, len(compared), m, n))
    for pair, found in enumerate(compared):
        both[:, pair, :, : counts[pair]] = found
    return _Compared(both[0], both[1], np.ones((len(compared), m), np.bool_), np.arange(n) < counts[:, None])


def _inside(values: Doubles, rows: Bools, columns: Bools) -> Doubles:
    """The values, with padding at minus infinity."""
    found: Doubles = np.where(cells(rows, columns), values, -np.inf)
    return found


def _plan(plan: Doubles, positions: Sequence[int]) -> tuple[TransportEntry, ...]:
    """What a plan (m, n) moves, the largest mass first."""
    moved = [
        TransportEntry(positions[row], column, mass)
        for row, masses in enumerate(plan.tolist())
        for column, mass in enumerate(masses)
        if mass >= NEGLIGIBLE
    ]
    return tuple(sorted(moved, key=lambda one: (-one.mass, one.query_position, one.position)))
