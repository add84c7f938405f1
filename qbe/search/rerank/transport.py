"""Optimal transport with an entropy term between small distributions, many problems at a time.

The problem is Cuturi's (2013). Sinkhorn's iteration reaches its solution slowly where the regularization is
weak against the costs; here the same solution is reached by Newton's method on the semi-dual. Arrays of the
solver have the batch (b) as last axis, so that numpy's inner loops are long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbe.errors import UsageError
from qbe.util.parallel import Workers

Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

_FIRST = 8.0
"""At the first stage no two costs of a problem differ by more than this, times lambda."""

_SHARPENING = 4.0
"""Lambda grows by this factor from stage to stage."""

_LOOSE = 0.1
"""Mass that may be wrong at the end of a stage that is not the last."""

_TOLERANCE, _MOST_ITERATIONS = 1e-9, 1000
"""Mass that may be wrong in the end, and after how many iterations a plan is taken as it is."""

_TINY = 1e-290
"""Added to the sum of a row's weights, so that a sum that underflows is not divided by."""


def total(array: Doubles, axis: int = 0) -> Doubles:
    """The sum along an axis, one after another.

    numpy's own sum pairs numbers up in an order that depends on the array's shape, and with it the last
    digit; here zeros that pad an array at its end change none.

    >>> total(np.array([[0.5, 1.0], [0.25, 0.0]]), axis=1).tolist()
    [1.5, 0.25]
    """
    first, *others = np.moveaxis(array, axis, 0)
    running: Doubles = first.copy()
    for other in others:
        running += other
    return running


class _Problems(NamedTuple):
    """Problems under way, the batch (b) as last axis, so that numpy's inner loops are long.

    ``costs`` (m, n, b), ``rows`` (m, b), ``columns`` (n, b). ``potentials`` (m, b) are the rows', in units
    of 1 / ``sharpness`` (b,), lambda at the present stage, and relative to ``levels`` (m, b), the logarithms
    of the rows' masses, which are the solution for a lambda of 0. ``places`` (b,) are those in the block.
    """

    costs: Doubles
    rows: Doubles
    columns: Doubles
    levels: Doubles
    potentials: Doubles
    sharpness: Doubles
    places: Ints


def solve(
    costs: Doubles,
    rows: Doubles,
    columns: Doubles,
    regularization: float,
) -> Doubles:
    """The plans of a block of problems, all laid out as in `entropic_transport`.

    Rows are sorted by mass, the greatest first: the elimination in `_step` takes the first as reference.

    >>> costs, halves = np.array([[[0.0, 1.0], [1.0, 0.0]]]), np.array([[0.5, 0.5]])
    >>> plans = solve(costs, halves, halves, np.log(4))  # ratios of masses: exp(log(4)) = 4
    >>> plans.round(6).tolist()
    [[[0.4, 0.1], [0.1, 0.4]]]
    """
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
            left = _at(left, going)
            shares, masses, missing = (part.take(going, axis=-1) for part in (shares, masses, missing))
            last, wrong = last[going], wrong[going]
        left = left._replace(potentials=left.potentials + _step(shares, masses, missing))
        left = _sharpened(left, ~last & (wrong <= _LOOSE), regularization)
    plans = np.empty_like(costs)
    np.put_along_axis(plans, order[:, :, None], solutions.transpose(2, 0, 1), 1)
    return plans


def _at(problems: _Problems, places: Ints) -> _Problems:
    """Some of the problems."""
    return _Problems(**{name: array.take(places, axis=-1) for name, array in problems._asdict().items()})


def _begin(costs: Doubles, rows: Doubles, columns: Doubles, regularization: float) -> _Problems:
    """Problems of the first stage, from arrays with the batch as first axis."""
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
    """Which share of its mass each column gets from each row (m, n, b): a softmax over the rows.

    With the columns' potentials at their best for those of the rows, this is the plan, column by column.
    """
    heights = problems.levels + problems.potentials
    shares: Doubles = heights[:, None] - problems.sharpness * problems.costs
    shares -= shares.max(axis=0)
    np.exp(shares, out=shares)
    shares /= total(shares)
    return shares


def _step(shares: Doubles, masses: Doubles, missing: Doubles) -> Doubles:
    """A damped Newton step (m, b) of the rows' potentials towards the maximum of the semi-dual.

    The Hessian is a graph's Laplacian, its nodes the rows, coupled by the columns that they share. Nodes are
    eliminated, the last first, in sums of numbers that are not negative alone, which keeps small couplings
    exact (Grassmann, Taksar and Heyman, 1985); row 0 is the reference, at 0. The semi-dual is made of
    log-sum-exps, so that damping by log(1 + r) / r, with r the range of the full step, ascends from
    anywhere, without a line search (Sun and Tran-Dinh, 2019, generalized self-concordance with nu = 2).
    """
    count = len(missing)
    # Of the symmetric weights those below the diagonal are used: the first row and last column are left out.
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
    """The problems, those that are ready at their next stage."""
    if not ready.any():
        return problems
    old = problems.sharpness
    new = np.where(ready, np.minimum(regularization, _SHARPENING * old), old)
    return problems._replace(sharpness=new, potentials=problems.potentials * (new / old))


REGULARIZATION = 20.0
"""Lambda of ASPIRE (Mysore et al., 2022)."""

_BLOCK = 1 << 15
"""Numbers in one array of a block of problems: what a processor's cache holds beside a few others."""


def entropic_transport(
    costs: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    regularization: float = REGULARIZATION,
    workers: Workers | None = None,
) -> Doubles:
    """Plans (pairs, m, n) float64 that move the masses of rows to columns at the least regularized cost.

    Of each pair of distributions, ``rows`` (pairs, m) and ``columns`` (pairs, n), each summing to 1, the plan
    P minimizes ``<P, costs> + sum(P * log(P)) / regularization`` (Cuturi, 2013) among those with these
    marginals. The columns' marginals hold but for rounding, the rows' up to a sum of absolute errors of 1e-9;
    a plan that would take more than 1000 iterations is returned as it stands then (5 to 15 are usual, some
    dozens where regularized costs differ by hundreds). A mass of 0 stands for padding; it gets no mass, and
    its ``costs`` (pairs, m, n) are not looked at. A plan depends neither on the other pairs nor on padding
    nor on the number of threads of ``workers`` (by default one).

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
    """The arrays, with masses that sum to 1 as closely as they can, and costs of 0 where there is no mass."""
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
