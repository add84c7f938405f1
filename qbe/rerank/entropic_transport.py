"""Optimal transport with an entropy term between small distributions, many problems at a time.

The problem is Cuturi's (2013). Sinkhorn's iteration reaches its solution slowly where the regularization
is weak against the costs; here the same solution is reached by Newton's method (`qbe.rerank.semidual`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from qbe.errors import UsageError, check_positive
from qbe.parallel import Workers
from qbe.rerank.semidual import Doubles, solve, total

REGULARIZATION = 20.0
"""Lambda of ASPIRE (Mysore et al., 2022)."""

_BLOCK = 1 << 15
"""Numbers in one array of a block of problems: what a processor's cache holds beside a few others."""

_SUM_ERROR = 1e-6
"""By how much a side's masses may miss 1."""


def entropic_transport(
    costs: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    regularization: float = REGULARIZATION,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
    workers: Workers | None = None,
) -> Doubles:
    """Plans (pairs, m, n) float64 that move the masses of rows to columns at the least regularized cost.

    Of each pair of distributions, ``rows`` (pairs, m) and ``columns`` (pairs, n), each summing to 1, the plan
    P minimizes ``<P, costs> + sum(P * log(P)) / regularization`` (Cuturi, 2013) among those with these
    marginals. The columns' marginals hold but for rounding, the rows' up to a sum of absolute errors of
    ``tolerance``; a plan that would take more than ``max_iterations`` is returned as it stands then (5 to 15
    are usual, some dozens where regularized costs differ by hundreds). A mass of 0 stands for padding; it
    gets no mass, and its ``costs`` (pairs, m, n) are not looked at. A plan depends neither on the other
    pairs nor on padding nor on the number of threads of ``workers`` (by default one).

    >>> entropic_transport([[[0.0, 1.0]]], [[1.0]], [[0.5, 0.5]]).round(3).tolist()
    [[[0.5, 0.5]]]

    Raises UsageError for shapes that do not belong together, masses that are negative or do not sum to 1,
    costs that are not finite, and parameters out of range.
    """
    _check_parameters(regularization, tolerance, max_iterations)
    workers = workers or Workers()
    costs, rows, columns = (np.asarray(values, np.float64) for values in (costs, rows, columns))
    costs, rows, columns = _checked(costs, rows, columns, regularization)
    pairs, m, n = costs.shape
    size = min(max(1, _BLOCK // max(1, m * max(m, n))), -(-pairs // workers.threads) or 1)

    def solved(first: int) -> Doubles:
        block = slice(first, first + size)
        return solve(costs[block], rows[block], columns[block], regularization, tolerance, max_iterations)

    plans = np.empty_like(costs)
    starts = range(0, pairs, size)
    for first, block in zip(starts, workers.map(solved, starts), strict=True):
        plans[first : first + size] = block
    return plans


def _check_parameters(regularization: float, tolerance: float, max_iterations: int) -> None:
    for name, value in (("regularization", regularization), ("tolerance", tolerance)):
        check_positive(name, value)
    if max_iterations < 1:
        raise UsageError(f"expected `max_iterations` of at least 1, found {max_iterations}")


def _checked(
    costs: Doubles, rows: Doubles, columns: Doubles, regularization: float
) -> tuple[Doubles, Doubles, Doubles]:
    """The arrays, with masses that sum to 1 as closely as they can, and costs of 0 where there is no mass."""
    if costs.ndim != 3 or rows.shape != costs.shape[:2] or columns.shape != costs.shape[::2]:
        raise UsageError(
            "expected costs (pairs, m, n) with rows (pairs, m) and columns (pairs, n), found "
            f"{costs.shape}, {rows.shape} and {columns.shape}"
        )
    if not len(costs):
        return costs, rows, columns
    scaled = []
    for masses in (rows, columns):
        sums = total(masses, 1) if masses.shape[1] else np.zeros(len(masses))
        wrong = ~(np.abs(sums - 1) <= _SUM_ERROR) | (masses < 0).any(axis=1)
        if wrong.any():
            raise UsageError(
                "expected masses of at least 0 that sum to 1 on each side of a pair, found "
                f"{masses[wrong][0].tolist()}"
            )
        scaled.append(masses / sums[:, None])
    live = (rows > 0)[:, :, None] & (columns > 0)[:, None]
    costs = np.where(live, costs, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(regularization * costs).all()
    if not finite:
        raise UsageError("expected finite costs wherever there is mass, found others; scale the vectors down")
    return costs, scaled[0], scaled[1]
