"""The losses of the facet rerankers, worked by hand on three candidates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qbe.train.reranker.loss import (
    LOSSES,
    MARGIN,
    RELEVANT,
    crossed_emphasis,
    logistic,
    margin,
    margin_mse,
)
from qbe.train.reranker.recipe import PAIRWISE

SCORES, GRADES = [1.0, 0.0, 2.0], [3.0, 1.0, 0.0]
"""The first candidate is 1 above the second and 1 below the third; the second is 2 below the third."""


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def softmax(values: list[float]) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def value_and_gradient(name: str, scores: list[float], grades: list[float]) -> tuple[float, list[float]]:
    variables = torch.tensor(scores, requires_grad=True)
    loss = LOSSES[name](variables, torch.tensor(grades))
    loss.backward()
    return loss.item(), variables.grad.tolist()


BY_HAND = {
    # Pairs of unlike grades differ by 2, 3 and 1 grades, and by 1, -1 and -2 in score.
    "logistic": (2 * softplus(-1) + 3 * softplus(1) + 1 * softplus(2)) / 6,
    "margin": (0 + 1.5 + 2.5) / 3,
    "listwise": -sum(
        p * math.log(q) for p, q in zip(softmax([3.0, 1.0, 0.0]), softmax([1.0, 0.0, 2.0]), strict=True)
    ),
    "cross-entropy": (softplus(-1) + softplus(0) + softplus(2)) / 3,
    # Errors -2, -1 and 2: of nine ordered pairs two differ by 1, two by 4, two by 3, three not at all.
    "margin-mse": (2 * 1 + 2 * 16 + 2 * 9) / 9,
}


@pytest.mark.parametrize("name", LOSSES)
def test_values(name):
    assert (MARGIN, RELEVANT) == (0.5, 1)
    assert value_and_gradient(name, SCORES, GRADES)[0] == pytest.approx(BY_HAND[name], rel=1e-6)


GRADIENTS = {
    # Each pair pulls its better candidate up and its worse one down by the same.
    "logistic": [
        (-2 * sigmoid(-1) - 3 * sigmoid(1)) / 6,
        (2 * sigmoid(-1) - 1 * sigmoid(2)) / 6,
        (3 * sigmoid(1) + 1 * sigmoid(2)) / 6,
    ],
    "margin": [-1 / 3, -1 / 3, 2 / 3],  # two of three pairs lie within the margin
    "listwise": [q - p for p, q in zip(softmax(GRADES), softmax(SCORES), strict=True)],
    "cross-entropy": [-sigmoid(-1) / 3, -sigmoid(0) / 3, sigmoid(2) / 3],
    "margin-mse": [4 / 3 * (error + 1 / 3) for error in (-2, -1, 2)],
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    actual = value_and_gradient(name, SCORES, GRADES)[1]
    assert actual == pytest.approx(GRADIENTS[name], rel=1e-5)
    assert actual[0] < 0 < actual[2]  # the best candidate rises, the worst falls


@pytest.mark.parametrize("name", ["logistic", "margin"])
def test_equal_grades_ask_nothing_of_pairs(name):
    assert value_and_gradient(name, SCORES, [2.0, 2.0, 2.0]) == (0, [0, 0, 0])


def test_equal_grades_ask_for_equal_scores():
    equal, unequal = (
        value_and_gradient("listwise", scores, [2.0, 2.0, 2.0]) for scores in ([7.0] * 3, SCORES)
    )
    assert equal == (pytest.approx(math.log(3)), pytest.approx([0, 0, 0], abs=1e-6))
    assert unequal[0] > equal[0] + 0.1


def test_a_grade_of_one_is_relevant():
    below, at = (value_and_gradient("cross-entropy", [0.5], [grade])[0] for grade in (0.5, 1.0))
    assert (below, at) == (pytest.approx(softplus(0.5)), pytest.approx(softplus(-0.5)))


@pytest.mark.parametrize("name", ["logistic", "margin"])
def test_a_better_order_costs_less(name):
    right, wrong = (value_and_gradient(name, scores, GRADES)[0] for scores in ([2.0, 1.0, 0.0], SCORES))
    assert right < wrong


def test_crossed_pairs_are_emphasized():
    # Candidates by background, method, result: the first two are crossed for background and method; the
    # third is worse than the first for both, and half a grade is no gap.
    grades = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.5, 0.0], [0.0, 1.5, 0.5]])
    background, method = (crossed_emphasis(grades, facet, 3.0).tolist() for facet in (0, 1))
    assert background == [[1, 1, 1], [4, 1, 4], [1, 1, 1]]
    assert method == [[1, 4, 1], [1, 1, 1], [1, 4, 1]]


@pytest.mark.parametrize("loss", [logistic, margin])
def test_emphasis_weighs_pairs(loss):
    """Of a list with pairs of loss a and b, the second of emphasis 3, the loss is their weighted mean."""
    scores, grades = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([2.0, 1.0, 1.0])
    emphasis = torch.ones(3, 3)
    emphasis[0, 2] = 3
    near, far = (loss(scores[[0, other]], grades[[0, other]]).item() for other in (1, 2))
    assert loss(scores, grades, emphasis).item() == pytest.approx((near + 3 * far) / 4)
    assert loss(scores, grades, torch.ones(3, 3)).item() == loss(scores, grades).item()


def test_the_losses_over_pairs_are_named():
    grades = torch.tensor(GRADES)
    for name, loss in LOSSES.items():
        takes = loss.__code__.co_argcount == 3
        assert takes is (name in PAIRWISE)
        if takes:
            assert loss(torch.tensor(SCORES), grades, torch.ones(3, 3)).isfinite()


NUMBERS = st.integers(-64, 64).map(lambda number: number / 8)  # sums and differences of these are exact
HALVES = st.integers(0, 6).map(lambda number: number / 2)
LISTS = st.lists(st.tuples(NUMBERS, HALVES), min_size=1, max_size=12)


@pytest.mark.parametrize("loss", [logistic, margin])
@given(pairs=LISTS, constant=NUMBERS)
def test_only_differences_of_scores_count(loss, pairs, constant):
    scores, grades = torch.tensor(pairs).T
    assert loss(scores + constant, grades).item() == loss(scores, grades).item()


@given(pairs=LISTS, constant=NUMBERS)
def test_the_teachers_differences_cost_nothing(pairs, constant):
    scores, grades = torch.tensor(pairs).T
    assert margin_mse(grades + constant, grades).item() == pytest.approx(0, abs=1e-9)
    errors = (scores - grades).tolist()
    expected = sum((first - second) ** 2 for first in errors for second in errors) / len(errors) ** 2
    assert margin_mse(scores, grades).item() == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert (margin_mse(scores, grades).item() > 1e-9) is (len(set(errors)) > 1)
