"""Regularized transport: worked by hand, against POT, and what must change nothing."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.errors import UsageError
from qbe.search.matching import entropic_transport
from qbe.util.work import Workers

os.environ["POT_BACKEND_DISABLE_PYTORCH"] = "1"  # or POT imports it
import ot

pytestmark = pytest.mark.slow


def problem(random: np.random.Generator, m: int, n: int, dimension: int) -> tuple[np.ndarray, ...]:
    """Distances (m, n) of unit vectors, and marginals that favour close ones."""
    vectors = random.standard_normal((m + n, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    costs = np.linalg.norm(vectors[:m, None] - vectors[None, m:], axis=2)
    sides = (np.exp(-costs.min(axis=axis) / 0.5) for axis in (1, 0))
    return costs, *(side / side.sum() for side in sides)


def padded(problems: list, m: int = 20, n: int = 20) -> tuple[np.ndarray, ...]:
    """Problems side by side, with what is no number where there is no mass."""
    costs = np.full((len(problems), m, n), np.nan)
    rows, columns = np.zeros((len(problems), m)), np.zeros((len(problems), n))
    for place, (cost, row, column) in enumerate(problems):
        costs[place, : len(row), : len(column)] = cost
        rows[place, : len(row)], columns[place, : len(column)] = row, column
    return costs, rows, columns


def solve(problems: list, **options) -> list[np.ndarray]:
    plans = entropic_transport(*padded(problems), **options)
    return [plan[: len(row), : len(column)] for plan, (_, row, column) in zip(plans, problems, strict=True)]


@pytest.fixture(scope="module")
def problems() -> list[tuple[np.ndarray, ...]]:
    random = np.random.default_rng(7)
    sizes = ((*random.integers(1, 21, 2), random.choice([32, 64, 384])) for _ in range(100))
    return [problem(random, *size) for size in sizes]


@pytest.fixture(scope="module")
def plans(problems) -> list[np.ndarray]:
    return solve(problems)


def cost(plan: np.ndarray, costs: np.ndarray) -> float:
    return float((plan * costs).sum())


def test_plans_cost_what_pot_says(problems, plans):
    for (costs, rows, columns), plan in zip(problems, plans, strict=True):
        peer = ot.sinkhorn(rows, columns, costs, 1 / 20, stopThr=1e-11, numItermax=10_000, warn=False)
        assert cost(plan, costs) == pytest.approx(cost(peer, costs), rel=1e-6)


@pytest.mark.parametrize("spread", [0.1, 30.0, 300.0])
def test_large_costs_neither_overflow_nor_stall(spread):
    random = np.random.default_rng(3)
    costs = random.uniform(10, 30, (40, 9, 7))
    rows, columns = (np.exp(-random.uniform(0, spread, (40, size))) for size in (9, 7))
    rows, columns = (side / side.sum(axis=1, keepdims=True) for side in (rows, columns))
    with np.errstate(all="raise", under="ignore"):
        plans = entropic_transport(costs, rows, columns)
    assert np.abs(plans.sum(axis=2) - rows).sum(axis=1).max() <= 1.1e-9
    assert np.abs(plans.sum(axis=1) - columns).sum(axis=1).max() <= 1e-14


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7), st.sampled_from([0.1, 1.0, 30.0]))
def test_what_changes_nothing(seed, m, n, scale):
    random = np.random.default_rng(seed)
    one, other = ((scale * costs, *sides) for costs, *sides in (problem(random, m, n, 5) for _ in range(2)))
    costs, rows, columns = one
    alone = entropic_transport(costs[None], rows[None], columns[None])[0]
    # Neither other pairs, nor padding, nor threads change a bit.
    for options in ({}, {"workers": Workers(3)}):
        again = solve([other, one, other, other], **options)
        assert (again[1] == alone).all()
        assert (again[0] == again[2]).all()
    gaps = padded([one])
    gaps = np.roll(gaps[0], (2, 5), (1, 2)), np.roll(gaps[1], 2, 1), np.roll(gaps[2], 5, 1)
    found = np.roll(entropic_transport(*gaps), (-2, -5), (1, 2))[0]
    assert found[:m, :n] == pytest.approx(alone, abs=2e-9)
    assert found.sum() == pytest.approx(1)
    # Sentences in another order are moved in that order.
    first, second = random.permutation(m), random.permutation(n)
    moved = entropic_transport(costs[first][:, second][None], rows[None, first], columns[None, second])[0]
    assert moved == pytest.approx(alone[first][:, second], abs=1e-8)


def test_costs_that_are_not_finite_are_refused():
    with pytest.raises(UsageError, match="expected finite costs"):
        entropic_transport([[[0, np.inf], [1, 0]]], [[0.5, 0.5]], [[0.5, 0.5]])
    assert entropic_transport(np.zeros((0, 2, 3)), np.zeros((0, 2)), np.zeros((0, 3))).shape == (0, 2, 3)
