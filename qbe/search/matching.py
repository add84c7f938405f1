"""Rerankers that match stored sentence vectors: those of ASPIRE (Mysore, Cohan and Hope, NAACL 2022), and the
mean of best matches.

The matchings are pure functions of many pairs of papers at a time. ``distances`` (Euclidean) and
``similarities`` are (pairs, m, n) float64, of the m sentences of one query to those of each candidate;
``columns`` (pairs, n) bool is False for padding, which changes no score, nor do other pairs. Scores are
(pairs,) float64, more is better. Optimal transport (Cuturi, 2013) is solved by Newton's method on the
semi-dual, since Sinkhorn's iteration converges slowly where the regularization is weak against the costs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbe.errors import UsageError
from qbe.models.formats import L2
from qbe.search.projections import Bools, Doubles, Ints, scored_in_threads
from qbe.search.rank import Progress, Requests, RequestScores, RerankRequest, RerankScore
from qbe.types import Match, Paper, TransportEntry
from qbe.util.work import Memo, Workers

# Largest difference of two costs of a problem, times lambda, at the first stage; the factor by which lambda
# grows from stage to stage; the mass that may be misplaced at the end of a stage but the last, and of that;
# the iterations after which a plan is taken as it is.
_FIRST, _SHARPENING, _LOOSE, _TOLERANCE, _MOST_ITERATIONS = 8.0, 4.0, 0.1, 1e-9, 1000

_TINY = 1e-290  # added to sums of weights, which may underflow, before dividing by them
_BLOCK = 1 << 15  # numbers in one array of a block of problems: a few arrays fit into a processor's cache

REGULARIZATION = 20.0  # lambda of ASPIRE (Mysore et al., 2022)

# Temperatures of transport's marginals for parts of abstracts and for whole ones: those of ASPIRE's appendix,
# for vectors that are not of unit length.
PART_TEMPERATURE, WHOLE_TEMPERATURE = 0.5, 5000.0

NEGLIGIBLE = 1e-6  # masses below this are left out of a plan

VectorSource = Callable[[Paper], NDArray[np.float32]]  # the vectors of all sentences of a paper


def total(array: Doubles, axis: int = 0) -> Doubles:
    """Sum along an axis in order, so that zeros at the end change no digit (unlike numpy's pairwise sum)."""
    first, *others = np.moveaxis(array, axis, 0)
    running: Doubles = first.copy()
    for other in others:
        running += other
    return running


class _Problems(NamedTuple):
    """Problems under way, the batch (b) as last axis, so that numpy's inner loops are long."""

    costs: Doubles  # (m, n, b)
    rows: Doubles  # (m, b)
    columns: Doubles  # (n, b)
    levels: Doubles  # (m, b), the logarithms of the rows' masses, which solve the problem for a lambda of 0
    potentials: Doubles  # (m, b), the rows', relative to the levels, in units of 1 / sharpness
    sharpness: Doubles  # (b,), lambda at the present stage
    places: Ints  # (b,), in the block


def _solve(costs: Doubles, rows: Doubles, columns: Doubles, regularization: float) -> Doubles:
    """Solve a block of problems, laid out as in `entropic_transport`."""
    # The greatest mass first: the elimination in `_step` takes the first row as reference.
    order = np.argsort(-rows, axis=1, kind="stable")
    costs, rows = np.take_along_axis(costs, order[:, :, None], 1), np.take_along_axis(rows, order, 1)
    live = (rows > 0)[:, :, None] & (columns > 0)[:, None]
    highest, lowest = (np.where(live, costs, -np.inf).max((1, 2)), np.where(live, costs, np.inf).min((1, 2)))
    spread = np.maximum(highest - lowest, 1e-300)  # or a division by it would overflow
    with np.errstate(divide="ignore"):  # padding has a level of minus infinity, and so never any mass
        levels = np.log(rows.T)
    left = _Problems(
        np.ascontiguousarray(costs.transpose(1, 2, 0)),
        np.ascontiguousarray(rows.T),
        np.ascontiguousarray(columns.T),
        levels,
        np.zeros_like(levels),
        np.minimum(regularization, _FIRST / spread),
        np.arange(len(costs)),
    )
    solutions = np.empty_like(left.costs)
    for iteration in range(1, _MOST_ITERATIONS + 1):
        # The share of its mass that each column gets from each row (m, n, b), with the columns' best
        # potentials: a softmax over the rows.
        shares: Doubles = (left.levels + left.potentials)[:, None] - left.sharpness * left.costs
        shares -= shares.max(axis=0)
        np.exp(shares, out=shares)
        shares /= total(shares)
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
        ready = ~last & (wrong <= _LOOSE)
        if ready.any():
            old = left.sharpness
            new = np.where(ready, np.minimum(regularization, _SHARPENING * old), old)
            left = left._replace(sharpness=new, potentials=left.potentials * (new / old))
    plans = np.empty_like(costs)
    np.put_along_axis(plans, order[:, :, None], solutions.transpose(2, 0, 1), 1)
    return plans


def _step(shares: Doubles, masses: Doubles, missing: Doubles) -> Doubles:
    """Return a damped Newton step (m, b) of the rows' potentials towards the maximum of the semi-dual.

    The Hessian is a graph's Laplacian. Its nodes, the rows, are eliminated, the last first, in sums of
    non-negative numbers, which keeps small couplings exact (Grassmann, Taksar and Heyman, 1985). Damping by
    log(1 + r) / r, with r the range of the full step, needs no line search (Sun and Tran-Dinh, 2019, nu = 2).
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


def entropic_transport(
    costs: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    regularization: float = REGULARIZATION,
    workers: Workers | None = None,
) -> Doubles:
    """Return plans (pairs, m, n) that move the masses of rows to columns at the least regularized cost.

    The plan P with the marginals ``rows`` (pairs, m) and ``columns`` (pairs, n) minimizes ``<P, costs> +
    sum(P * log(P)) / regularization`` (Cuturi, 2013). A mass of 0 is padding, whose ``costs`` (pairs, m, n)
    are not read.
    """
    workers = workers or Workers()
    costs, rows, columns = (np.asarray(values, np.float64) for values in (costs, rows, columns))
    if len(costs):
        rows, columns = (masses / total(masses, 1)[:, None] for masses in (rows, columns))
        costs = np.where((rows > 0)[:, :, None] & (columns > 0)[:, None], costs, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(regularization * costs).all()
        if not finite:
            raise UsageError(
                "expected finite costs wherever there is mass, found others; scale the vectors down"
            )
    pairs, m, n = costs.shape
    size = min(max(1, _BLOCK // max(1, m * max(m, n))), -(-pairs // workers.threads) or 1)
    blocks = [slice(first, first + size) for first in range(0, pairs, size)]
    plans = np.empty_like(costs)
    solved = workers.map(lambda part: _solve(costs[part], rows[part], columns[part], regularization), blocks)
    for block, found in zip(blocks, solved, strict=True):
        plans[block] = found
    return plans


def single_match(distances: Doubles, columns: Bools) -> Doubles:
    """Minus the least distance, ``-min D[i, j]``: TSASPIRE."""
    return np.asarray(-np.where(columns[:, None], distances, np.inf).min(axis=(1, 2)))


def attention(distances: Doubles, columns: Bools, temperature: float = 1.0) -> Doubles:
    """Minus the mean distance, weighted by the softmax of -D / temperature over all pairs: ATTASPIRE."""
    nearness = np.where(columns[:, None], -distances / temperature, -np.inf)
    weights = np.exp(nearness - nearness.max(axis=(1, 2), keepdims=True))
    weighted = weights * np.where(columns[:, None], distances, 0)
    return np.asarray(-total(total(weighted, 2), 1) / total(total(weights, 2), 1))


def transport(
    distances: Doubles,
    columns: Bools,
    temperature: float,
    regularization: float = REGULARIZATION,
    workers: Workers | None = None,
) -> tuple[Doubles, Doubles]:
    """Minus the cost ``-sum D * P`` of the plans P (pairs, m, n) between the `marginals`, and P: OTASPIRE."""
    sources, targets = marginals(distances, columns, temperature)
    plans = entropic_transport(distances, sources, targets, regularization, workers=workers)
    return -total(total(plans * np.where(plans > 0, distances, 0), 2), 1), plans


def marginals(distances: Doubles, columns: Bools, temperature: float) -> tuple[Doubles, Doubles]:
    """The mass of each sentence, (pairs, m) and (pairs, n): on each side the softmax of ``-min D /
    temperature``, the minimum being over the other side's sentences; padding gets 0.
    """
    near, masses = np.where(columns[:, None], -distances, -np.inf), list[Doubles]()
    for axis in (2, 1):
        logits = near.max(axis=axis) / temperature
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        masses.append(powers / total(powers, 1)[:, None])
    return masses[0], masses[1]


def mean_max(similarities: Doubles, columns: Bools) -> Doubles:
    """The mean over the rows of each one's best similarity (Khattab and Zaharia, 2020, eq. 3)."""
    best = np.where(columns[:, None], similarities, -np.inf).max(axis=2)
    return np.asarray(total(best, 1) / best.shape[1])


@dataclass
class VectorMatching:
    """Scores vectors of a query's sentences against candidates'; ``match`` contributed most."""

    name: str
    vectors: VectorSource
    similarity: str
    temperature: float | None = None
    regularization: float | None = None
    workers: Workers | None = None

    needs_vectors, takes_whole_abstracts = True, True

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        vectors = Memo(self.vectors)
        return scored_in_threads(lambda each: self._scores(each, vectors), requests, Workers(), progress)

    def _scores(self, request: RerankRequest, vectors: VectorSource) -> list[RerankScore]:
        query, papers = request
        if not papers:
            return []
        query_vectors = query.sentence_vectors.astype(np.float64)
        compared = [_compare(query_vectors, vectors(paper)) for paper in papers]
        # Padded with zeros to the most columns.
        counts = np.array([matrices[0].shape[1] for matrices in compared])
        distances, cosines = both = np.zeros((2, len(papers), len(query_vectors), int(counts.max())))
        for pair, matrices in enumerate(compared):
            both[:, pair, :, : counts[pair]] = matrices
        columns = np.arange(both.shape[3]) < counts[:, None]

        plans: Doubles | None = None
        if self.name == "transport":
            is_whole = query.aspect.facet is None and query.aspect.positions is None
            temperature = self.temperature or (WHOLE_TEMPERATURE if is_whole else PART_TEMPERATURE)
            scores, plans = transport(
                distances, columns, temperature, self.regularization or REGULARIZATION, self.workers
            )
            weights = plans * cosines
        elif self.name == "mean-max":
            weights = -distances if self.similarity == L2 else cosines
            scores = mean_max(weights, columns)
        elif self.name == "attention":
            weights, scores = -distances, attention(distances, columns, self.temperature or 1.0)
        else:
            weights, scores = -distances, single_match(distances, columns)
        weights = np.where(columns[:, None], weights, -np.inf)
        results = []
        for pair, score in enumerate(scores.tolist()):
            row, column = np.unravel_index(int(weights[pair].argmax()), weights[pair].shape)
            match = Match(query.positions[row], int(column), float(cosines[pair, row, column]))
            plan = [
                TransportEntry(query.positions[row], column, mass)
                for row, masses in enumerate([] if plans is None else plans[pair].tolist())
                for column, mass in enumerate(masses)
                if mass >= NEGLIGIBLE
            ]
            plan.sort(key=lambda entry: (-entry.mass, entry.query_position, entry.position))
            results.append(RerankScore(score, match, tuple(plan)))
        return results


def _compare(query: Doubles, vectors: NDArray[np.float32]) -> tuple[Doubles, Doubles]:
    """Euclidean distances and cosines (m, n) of vectors (m, dimension) and (n, dimension)."""
    # Double precision holds products of half-precision numbers and their sums exactly.
    candidate = vectors.astype(np.float64)
    products = query @ candidate.T
    squares, others = ((side * side).sum(axis=1) for side in (query, candidate))
    distances = np.sqrt(np.maximum(squares[:, None] + others - 2 * products, 0))
    lengths = np.sqrt(squares)[:, None] * np.sqrt(others)
    cosines = np.zeros_like(products)
    np.divide(products, lengths, out=cosines, where=lengths > 0)
    return distances, cosines
