"""Rerankers that match stored sentence vectors, without another pass of a model: those of ASPIRE (Mysore,
Cohan and Hope, NAACL 2022), and the mean of best matches.

The matchings are pure functions of many pairs of papers at a time. ``distances`` (Euclidean) and
``similarities`` are (pairs, m, n) float64, of the m sentences of one query to those of each candidate;
``columns`` (pairs, n) bool is True for the candidate's sentences, of which each has at least one, and False
for padding. Scores are (pairs,) float64, more is better; neither padding nor other pairs change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.models.formats import L2
from qbe.models.pooling import EncodedAspect
from qbe.query import Aspect
from qbe.search.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.search.rerank.transport import REGULARIZATION, Bools, Doubles, entropic_transport, total
from qbe.types import Match, Paper, TransportEntry
from qbe.util.parallel import Memo, Workers


def single_match(distances: Doubles, columns: Bools) -> Doubles:
    """Minus the least distance, ``-min D[i, j]``: how TSASPIRE ranks.

    >>> columns = np.array([[True, False]])  # one candidate sentence, padded
    >>> single_match(np.array([[[3.0, 1.0], [2.0, 4.0]]]), columns).tolist()
    [-2.0]
    """
    scores: Doubles = -np.where(columns[:, None], distances, np.inf).min(axis=(1, 2))
    return scores


def attention(distances: Doubles, columns: Bools) -> Doubles:
    """Minus the mean distance by soft attention, ``-sum D * A`` where A is the softmax of -D over all pairs
    of sentences: ATTASPIRE.

    >>> distances = np.array([[[0.0, np.log(3)]]])  # weights 3/4 and 1/4
    >>> attention(distances, np.array([[True, True]])).round(4).tolist()
    [-0.2747]
    """
    nearness = _inside(-distances, columns)
    weights = np.exp(nearness - nearness.max(axis=(1, 2), keepdims=True))
    weighted = weights * np.where(columns[:, None], distances, 0)
    return -_over_all(weighted) / _over_all(weights)


class Transported(NamedTuple):
    """Scores (pairs,), and the plans (pairs, m, n) float64 that they come from, each of mass 1."""

    scores: Doubles
    plans: Doubles


def transport(
    distances: Doubles,
    columns: Bools,
    temperature: float,
    regularization: float = REGULARIZATION,
    workers: Workers | None = None,
) -> Transported:
    """Minus the cost of moving one paper's sentences to the other's, ``-sum D * P``: OTASPIRE.

    P is the entropy-regularized optimal plan (see `qbe.search.rerank.transport`, and its errors) between
    the marginals of `marginals`.

    >>> distances, tau = np.array([[[1.0, 3.0]]]), 2 / np.log(3)  # masses 3/4 and 1/4
    >>> result = transport(distances, np.array([[True, True]]), tau)
    >>> result.scores.round(6).tolist(), result.plans.round(6).tolist()
    ([-1.5], [[[0.75, 0.25]]])
    """
    sources, targets = marginals(distances, columns, temperature)
    plans = entropic_transport(distances, sources, targets, regularization, workers=workers)
    return Transported(-_over_all(plans * np.where(plans > 0, distances, 0)), plans)


def marginals(distances: Doubles, columns: Bools, temperature: float) -> tuple[Doubles, Doubles]:
    """How much each sentence counts, (pairs, m) and (pairs, n), each summing to 1, padding 0.

    On each side the softmax of ``-min D / temperature``, the minimum being over the other side's sentences.

    >>> distances, tau = np.array([[[1.0, 3.0]]]), 2 / np.log(3)  # exp(-1 / tau) is 3 times exp(-3 / tau)
    >>> rows, columns = marginals(distances, np.array([[True, True]]), tau)
    >>> rows.tolist(), columns.round(6).tolist()
    ([[1.0]], [[0.75, 0.25]])
    """
    near = _inside(-distances, columns)
    return _softmax(near.max(axis=2) / temperature), _softmax(near.max(axis=1) / temperature)


def mean_max(similarities: Doubles, columns: Bools) -> Doubles:
    """The mean over the rows' sentences of each one's best similarity.

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.

    >>> two = np.array([[True, True]])
    >>> mean_max(np.array([[[0.75, 0.25], [0.0, 0.5]]]), two).tolist()  # (0.75 + 0.5) / 2
    [0.625]
    """
    best = _inside(similarities, columns).max(axis=2)
    mean: Doubles = total(best, 1) / best.shape[1]
    return mean


def _softmax(logits: Doubles) -> Doubles:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Doubles = powers / total(powers, 1)[:, None]
    return shares


def _over_all(values: Doubles) -> Doubles:
    """Sums (pairs,) over both sides' sentences."""
    return total(total(values, 2), 1)


MATCHINGS = ("transport", "attention", "single-match", "mean-max")
"""Names of the matchings."""

PART_TEMPERATURE, WHOLE_TEMPERATURE = 0.5, 5000.0
"""Of transport's marginals, for queries that are part of an abstract and for whole ones: ASPIRE's (its
appendix), for vectors that are not of unit length."""

NEGLIGIBLE = 1e-6
"""Masses below this are left out of a plan."""

VectorSource = Callable[[Paper], NDArray[np.float32]]
"""Gives the vectors of all sentences of a paper, (sentences, dimension)."""


class VectorMatching:
    """Scores the vectors of a query's sentences against those of all sentences of a candidate.

    Of a score, ``match`` is the pair of sentences that contributed most to it, with its cosine: for transport
    the one with the largest mass times cosine, for mean-max the best, else the closest. Transport gives its
    plan too.

    >>> from qbe.types import Sentence
    >>> paper = Paper("p1", "", (Sentence("We route."), Sentence("It helps.")))
    >>> query = EncodedAspect(Aspect(paper), (0, 1), np.eye(2, dtype=np.float32))
    >>> matching = VectorMatching("mean-max", lambda paper: np.float32([[1, 0]]), similarity="cosine")
    >>> matching.batch_score([RerankRequest(query, [paper])])  # cosines 1 and 0
    [[RerankScore(score=0.5, match=Match(query_position=0, position=0, score=1.0, aspect=0), ...)]]
    """

    needs_vectors = True
    takes_whole_abstracts = True

    def __init__(
        self,
        name: str,
        vectors: VectorSource,
        *,
        similarity: str,
        temperature: float | None = None,
        regularization: float = REGULARIZATION,
        workers: Workers | None = None,
    ) -> None:
        """Match by one of MATCHINGS; ``vectors`` gives those of a candidate, such as
        ``lambda paper: index.vectors(paper).sentences``.

        ``similarity`` is that of the vectors (``index.similarity``): mean-max takes best cosines, or with
        ``l2`` least distances; the others go by distance in any case.
        ``temperature`` and ``regularization`` (lambda) belong to transport; the temperature is by default
        0.5 for an aspect by facet or sentences, and 5000 for a whole abstract. Scores of vectors in half
        precision, as an index has them, depend neither on the linear algebra library nor on the threads of
        ``workers``.
        """
        self.name = name
        self._vectors = vectors
        self._temperature, self._regularization = temperature, regularization
        self._workers, self._similarity = workers, similarity

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.search.rerank.reranker.Reranker.batch_score`."""
        vectors = Memo(self._vectors)
        return [self._score_request(query, papers, vectors, progress) for query, papers in requests]

    def _score_request(
        self,
        query: EncodedAspect,
        papers: Sequence[Paper],
        vectors: VectorSource,
        progress: Progress | None,
    ) -> list[RerankScore]:
        if not papers:
            return []
        query_vectors = query.sentence_vectors.astype(np.float64)
        compared = _together([_compare(query_vectors, vectors(paper)) for paper in papers])
        scored = self._score(compared, self._temperature_for(query.aspect))
        results = []
        for pair, score in enumerate(scored.scores.tolist()):
            row, column = np.unravel_index(int(scored.weights[pair].argmax()), scored.weights[pair].shape)
            cosine = float(compared.cosines[pair, row, column])
            match = Match(query.positions[row], int(column), cosine)
            plan = () if scored.plans is None else _plan(scored.plans[pair], query.positions)
            results.append(RerankScore(score, match, plan))
            if progress:
                progress(1)
        return results

    def _temperature_for(self, aspect: Aspect) -> float:
        if self._temperature is not None:
            return self._temperature
        whole = aspect.facet is None and aspect.positions is None
        return WHOLE_TEMPERATURE if whole else PART_TEMPERATURE

    def _score(self, compared: _Compared, temperature: float) -> _Scored:
        distances, cosines, columns = compared
        if self.name == "transport":
            transported = transport(distances, columns, temperature, self._regularization, self._workers)
            weights = transported.plans * cosines
            return _Scored(transported.scores, _inside(weights, columns), transported.plans)
        if self.name == "mean-max":
            near = -distances if self._similarity == L2 else cosines
            return _Scored(mean_max(near, columns), _inside(near, columns))
        score = attention if self.name == "attention" else single_match
        return _Scored(score(distances, columns), _inside(-distances, columns))


class _Compared(NamedTuple):
    """Distances and cosines (pairs, m, n) float64 of sentences, and which are no padding, (pairs, n)."""

    distances: Doubles
    cosines: Doubles
    columns: Bools


class _Scored(NamedTuple):
    """Scores (pairs,), each pair of sentences' part in them (pairs, m, n), and plans (pairs, m, n)."""

    scores: Doubles
    weights: Doubles
    plans: Doubles | None = None


def _compare(query: Doubles, vectors: NDArray[np.float32]) -> tuple[Doubles, Doubles]:
    """Euclidean distances and cosines (m, n) of vectors (m, dimension) and (n, dimension).

    Double precision holds products of an index's half-precision numbers and their sums exactly (see
    `qbe.index.scoring`), so that no order of summation shows, and equal vectors have distance 0.
    """
    candidate = vectors.astype(np.float64)
    products = query @ candidate.T
    squares, others = ((side * side).sum(axis=1) for side in (query, candidate))
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
    for pair, matrices in enumerate(compared):
        both[:, pair, :, : counts[pair]] = matrices
    return _Compared(both[0], both[1], np.arange(n) < counts[:, None])


def _inside(values: Doubles, columns: Bools) -> Doubles:
    """The values, with padding at minus infinity."""
    inside: Doubles = np.where(columns[:, None], values, -np.inf)
    return inside


def _plan(plan: Doubles, positions: Sequence[int]) -> tuple[TransportEntry, ...]:
    """The entries of a plan (m, n), the largest mass first, negligible ones left out."""
    entries = [
        TransportEntry(positions[row], column, mass)
        for row, masses in enumerate(plan.tolist())
        for column, mass in enumerate(masses)
        if mass >= NEGLIGIBLE
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.mass, entry.query_position, entry.position)))
