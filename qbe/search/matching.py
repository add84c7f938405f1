"""Rerankers that match stored sentence vectors, without another pass of a model: those of ASPIRE (Mysore,
Cohan and Hope, NAACL 2022), and the mean of best matches.

The matchings are pure functions of many pairs of papers at a time. ``distances`` (Euclidean) and
``similarities`` are (pairs, m, n) float64, of the m sentences of one query to those of each candidate;
``columns`` (pairs, n) bool is True for a candidate's sentences, at least one, and False for padding. Scores
are (pairs,) float64, more is better; neither padding nor other pairs change them.

Optimal transport with an entropy term is Cuturi's problem (2013). Sinkhorn's iteration converges slowly where
the regularization is weak against the costs; Newton's method on the semi-dual reaches the same solution here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbe.errors import UsageError
from qbe.models.formats import L2
from qbe.models.pooling import EncodedAspect
from qbe.search.rank import Progress, RerankRequest, RerankScore
from qbe.types import Match, Paper, TransportEntry
from qbe.util.work import Memo, Workers

Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

_FIRST = 8.0
"""Largest difference of two costs of a problem, times lambda, at the first stage."""

_SHARPENING = 4.0
"""Lambda grows by this factor from stage to stage."""

_LOOSE = 0.1
"""Mass that may be misplaced at the end of a stage but the last."""

_TOLERANCE, _MOST_ITERATIONS = 1e-9, 1000
"""Mass that may be misplaced in the end, and the iterations after which a plan is taken as it is."""

_TINY = 1e-290
"""Added to sums of weights, which may underflow, before dividing by them."""


def total(array: Doubles, axis: int = 0) -> Doubles:
    """Sum along an axis in order, so that zeros at the end change no digit (unlike numpy's pairwise sum)."""
    first, *others = np.moveaxis(array, axis, 0)
    running: Doubles = first.copy()
    for other in others:
        running += other
    return running


class _Problems(NamedTuple):
    """Problems under way, the batch (b) as last axis, so that numpy's inner loops are long.

    ``potentials`` are the rows', in units of 1 / ``sharpness``, lambda at the present stage, relative to
    ``levels``, the logarithms of the rows' masses, which solve the problem for a lambda of 0.
    """

    costs: Doubles  # (m, n, b)
    rows: Doubles  # (m, b)
    columns: Doubles  # (n, b)
    levels: Doubles  # (m, b)
    potentials: Doubles  # (m, b)
    sharpness: Doubles  # (b,)
    places: Ints  # (b,), in the block


def solve(costs: Doubles, rows: Doubles, columns: Doubles, regularization: float) -> Doubles:
    """Solve a block of problems, laid out as in `entropic_transport`."""
    # The greatest mass first: the elimination in `_step` takes the first row as reference.
    order = np.argsort(-rows, axis=1, kind="stable")
    costs = np.take_along_axis(costs, order[:, :, None], 1)
    left = _begin(costs, np.take_along_axis(rows, order, 1), columns, regularization)
    solutions = np.empty_like(left.costs)
    for iteration in range(1, _MOST_ITERATIONS + 1):
        shares = _shares(left)
        masses = shares * left.columns
        missing = left.rows - total(masses, 1)
        wrong = total(np.abs(missing))
        last = left.sharpness >= regularization
        done = (last & (wrong <= _TOLERANCE)) | (iteration == _MOST_ITERATIONS)
        if done.any():
            solutions[:, :, left.places[done]] = masses[:, :, done]
            going = np.flatnonzero(~done)
            if not len(going):
                break
            left = _Problems._make(part.take(going, axis=-1) for part in left)
            shares, masses, missing = (part.take(going, axis=-1) for part in (shares, masses, missing))
            last, wrong = last[going], wrong[going]
        left = left._replace(potentials=left.potentials + _step(shares, masses, missing))
        left = _sharpened(left, ~last & (wrong <= _LOOSE), regularization)
    plans = np.empty_like(costs)
    np.put_along_axis(plans, order[:, :, None], solutions.transpose(2, 0, 1), 1)
    return plans


def _begin(costs: Doubles, rows: Doubles, columns: Doubles, regularization: float) -> _Problems:
    live = (rows > 0)[:, :, None] & (columns > 0)[:, None]
    highest, lowest = (np.where(live, costs, -np.inf).max((1, 2)), np.where(live, costs, np.inf).min((1, 2)))
    spread = np.maximum(highest - lowest, 1e-300)  # or a division by it would overflow
    with np.errstate(divide="ignore"):  # padding has a level of minus infinity, and so never any mass
        levels = np.log(rows.T)
    return _Problems(
        np.ascontiguousarray(costs.transpose(1, 2, 0)),
        np.ascontiguousarray(rows.T),
        np.ascontiguousarray(columns.T),
        levels,
        np.zeros_like(levels),
        np.minimum(regularization, _FIRST / spread),
        np.arange(len(costs)),
    )


def _shares(problems: _Problems) -> Doubles:
    """The share of its mass that each column gets from each row (m, n, b), with the columns' best potentials:
    a softmax over the rows.
    """
    heights = problems.levels + problems.potentials
    shares: Doubles = heights[:, None] - problems.sharpness * problems.costs
    shares -= shares.max(axis=0)
    np.exp(shares, out=shares)
    shares /= total(shares)
    return shares


def _step(shares: Doubles, masses: Doubles, missing: Doubles) -> Doubles:
    """A damped Newton step (m, b) of the rows' potentials towards the maximum of the semi-dual.

    The Hessian is the Laplacian of a graph whose nodes are the rows. Nodes are eliminated, the last first, in
    sums of non-negative numbers, which keeps small couplings exact (Grassmann, Taksar and Heyman, 1985); row
    0 is the reference. The semi-dual consists of log-sum-exps, so that damping by log(1 + r) / r, with r the
    range of the full step, ascends from anywhere without a line search (Sun and Tran-Dinh, 2019, generalized
    self-concordance with nu = 2).
    """
    count = len(missing)
    # Only weights below the diagonal of the symmetric matrix are used.
    weights = np.zeros((count - 1, count - 1, missing.shape[1]))
    product = np.empty_like(weights)
    for column in range(masses.shape[1]):
        weights += np.multiply(shares[1:, None, column], masses[None, :-1, column], out=product)
    step = missing.copy()
    for node in range(count - 1, 0, -1):
        row, below = weights[node - 1, :node], node - 1
        conductance = total(row) + _TINY
        ratios = row / conductance
        step[:node] += ratios * step[node]
        step[node] /= conductance
        weights[:below, :below] += np.multiply(ratios[1:, None], row[None, :-1], out=product[:below, :below])
        row[...] = ratios
    step[0] = 0
    for node in range(1, count):
        step[node] += total(weights[node - 1, :node] * step[:node])
    extent = step.max(axis=0) - step.min(axis=0)
    damping = np.ones_like(extent)
    np.divide(np.log1p(extent), extent, out=damping, where=extent > 0)
    step *= damping
    return step


def _sharpened(problems: _Problems, ready: Bools, regularization: float) -> _Problems:
    """Move the problems that are ready to their next stage."""
    if not ready.any():
        return problems
    old = problems.sharpness
    new = np.where(ready, np.minimum(regularization, _SHARPENING * old), old)
    return problems._replace(sharpness=new, potentials=problems.potentials * (new / old))


REGULARIZATION = 20.0
"""Lambda of ASPIRE (Mysore et al., 2022)."""

_BLOCK = 1 << 15
"""Numbers in one array of a block of problems, so that a few arrays fit into a processor's cache."""


def entropic_transport(
    costs: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    regularization: float = REGULARIZATION,
    workers: Workers | None = None,
) -> Doubles:
    """Plans (pairs, m, n) float64 that move the masses of rows to columns at the least regularized cost.

    For distributions ``rows`` (pairs, m) and ``columns`` (pairs, n), the plan P with these marginals
    minimizes ``<P, costs> + sum(P * log(P)) / regularization`` (Cuturi, 2013). The columns' marginals hold
    but for rounding, the rows' up to a sum of absolute errors of 1e-9, or less exactly after 1000 iterations
    (5 to 15 are usual). A mass of 0 is padding, whose ``costs`` (pairs, m, n) are not read. A plan depends
    neither on other pairs nor on padding nor on the threads of ``workers`` (by default one).

    >>> entropic_transport([[[0.0, 1.0]]], [[1.0]], [[0.5, 0.5]]).round(3).tolist()
    [[[0.5, 0.5]]]

    Raises UsageError for costs that are not finite.
    """
    workers = workers or Workers()
    costs, rows, columns = (np.asarray(values, np.float64) for values in (costs, rows, columns))
    costs, rows, columns = _checked(costs, rows, columns, regularization)
    pairs, m, n = costs.shape
    size = min(max(1, _BLOCK // max(1, m * max(m, n))), -(-pairs // workers.threads) or 1)

    def solved(first: int) -> Doubles:
        block = slice(first, first + size)
        return solve(costs[block], rows[block], columns[block], regularization)

    plans = np.empty_like(costs)
    starts = range(0, pairs, size)
    for first, block in zip(starts, workers.map(solved, starts), strict=True):
        plans[first : first + size] = block
    return plans


def _checked(
    costs: Doubles, rows: Doubles, columns: Doubles, regularization: float
) -> tuple[Doubles, Doubles, Doubles]:
    """Normalize masses to a sum of 1, and set costs to 0 where there is no mass."""
    if not len(costs):
        return costs, rows, columns
    rows, columns = (masses / total(masses, 1)[:, None] for masses in (rows, columns))
    live = (rows > 0)[:, :, None] & (columns > 0)[:, None]
    costs = np.where(live, costs, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(regularization * costs).all()
    if not finite:
        raise UsageError("expected finite costs wherever there is mass, found others; scale the vectors down")
    return costs, rows, columns


def single_match(distances: Doubles, columns: Bools) -> Doubles:
    """Minus the least distance, ``-min D[i, j]``: TSASPIRE.

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
    """Scores (pairs,) and their plans (pairs, m, n) float64, each of mass 1."""

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

    P is the plan of `entropic_transport` between the marginals of `marginals`.

    >>> distances, tau = np.array([[[1.0, 3.0]]]), 2 / np.log(3)  # masses 3/4 and 1/4
    >>> result = transport(distances, np.array([[True, True]]), tau)
    >>> result.scores.round(6).tolist(), result.plans.round(6).tolist()
    ([-1.5], [[[0.75, 0.25]]])
    """
    sources, targets = marginals(distances, columns, temperature)
    plans = entropic_transport(distances, sources, targets, regularization, workers=workers)
    return Transported(-_over_all(plans * np.where(plans > 0, distances, 0)), plans)


def marginals(distances: Doubles, columns: Bools, temperature: float) -> tuple[Doubles, Doubles]:
    """The mass of each sentence, (pairs, m) and (pairs, n): on each side the softmax of ``-min D /
    temperature``, the minimum being over the other side's sentences; padding gets 0.

    >>> distances, tau = np.array([[[1.0, 3.0]]]), 2 / np.log(3)  # exp(-1 / tau) is 3 times exp(-3 / tau)
    >>> rows, columns = marginals(distances, np.array([[True, True]]), tau)
    >>> rows.tolist(), columns.round(6).tolist()
    ([[1.0]], [[0.75, 0.25]])
    """
    near = _inside(-distances, columns)
    return _softmax(near.max(axis=2) / temperature), _softmax(near.max(axis=1) / temperature)


def mean_max(similarities: Doubles, columns: Bools) -> Doubles:
    """The mean over the rows' sentences of each one's best similarity (the soft alignment of ColBERT, Khattab
    and Zaharia, 2020, eq. 3, over sentences and as a mean).

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
    return total(total(values, 2), 1)


PART_TEMPERATURE, WHOLE_TEMPERATURE = 0.5, 5000.0
"""Temperatures of transport's marginals for parts of abstracts and for whole ones: those of ASPIRE's
appendix, for vectors that are not of unit length."""

NEGLIGIBLE = 1e-6
"""Masses below this are left out of a plan."""

VectorSource = Callable[[Paper], NDArray[np.float32]]
"""Returns the vectors of all sentences of a paper, (sentences, dimension)."""


class VectorMatching:
    """Scores the vectors of a query's sentences against those of all sentences of a candidate.

    ``match`` is the pair of sentences that contributed most to a score, with its cosine: for transport the
    one with the largest mass times cosine, for mean-max the best, else the closest. Transport gives its plan
    too.

    >>> from qbe.query import Aspect
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
        """Match by one of `qbe.search.stages.MATCHINGS`; ``vectors`` returns those of a candidate.

        ``similarity`` is that of the vectors (``index.similarity``): mean-max takes best cosines, or with
        ``l2`` least distances; the others go by distance. ``temperature`` and ``regularization`` (lambda)
        belong to transport; the temperature is by default 0.5 for a facet or sentences, 5000 for a whole
        abstract. Scores of vectors in half precision depend neither on the linear algebra library nor on the
        threads of ``workers``.
        """
        self.name = name
        self._vectors = vectors
        self._temperature, self._regularization = temperature, regularization
        self._workers, self._similarity = workers, similarity

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
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
        aspect, temperature = query.aspect, self._temperature
        if temperature is None:
            is_whole = aspect.facet is None and aspect.positions is None
            temperature = WHOLE_TEMPERATURE if is_whole else PART_TEMPERATURE
        scored = self._score(compared, temperature)
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
    """Distances and cosines (pairs, m, n) float64 of sentences; ``columns`` (pairs, n) are no padding."""

    distances: Doubles
    cosines: Doubles
    columns: Bools


class _Scored(NamedTuple):
    """Scores (pairs,), the part of each pair of sentences in them, and plans, both (pairs, m, n)."""

    scores: Doubles
    weights: Doubles
    plans: Doubles | None = None


def _compare(query: Doubles, vectors: NDArray[np.float32]) -> tuple[Doubles, Doubles]:
    """Euclidean distances and cosines (m, n) of vectors (m, dimension) and (n, dimension).

    Double precision holds products of half-precision numbers and their sums exactly, so that no order of
    summation shows, and equal vectors have distance 0.
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
    """Pad matrices of equal rows with zeros to the most columns."""
    counts = np.array([distances.shape[1] for distances, _ in compared])
    m, n = len(compared[0][0]), int(counts.max())
    both = np.zeros((2, len(compared), m, n))
    for pair, matrices in enumerate(compared):
        both[:, pair, :, : counts[pair]] = matrices
    return _Compared(both[0], both[1], np.arange(n) < counts[:, None])


def _inside(values: Doubles, columns: Bools) -> Doubles:
    """Set padding to minus infinity."""
    inside: Doubles = np.where(columns[:, None], values, -np.inf)
    return inside


def _plan(plan: Doubles, positions: Sequence[int]) -> tuple[TransportEntry, ...]:
    """The entries of a plan (m, n), largest mass first, without negligible ones."""
    entries = [
        TransportEntry(positions[row], column, mass)
        for row, masses in enumerate(plan.tolist())
        for column, mass in enumerate(masses)
        if mass >= NEGLIGIBLE
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.mass, entry.query_position, entry.position)))
