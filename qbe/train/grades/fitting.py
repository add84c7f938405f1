"""Fitting the heads of the grade model: networks over features whose scores are grades."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.grade.head import Head
from qbe.train.grades.recipe import Recipe
from qbe.train.standardization import Standardization
from qbe.types import Facet

Doubles = NDArray[np.float64]

_PAIRS = tuple(combinations(range(len(Facet)), 2))


def grade_loss(predicted: Tensor, grades: Tensor, differences: float) -> Tensor:
    """The mean squared error of grades (pairs, 3), and with the weight ``differences`` that of the
    differences of two facets' grades.

    >>> float(grade_loss(torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1, 3), 0.5))  # 1/3 + 0.5 * 2/3
    0.666...
    """
    error = predicted - grades
    between = torch.stack([error[:, first] - error[:, second] for first, second in _PAIRS], dim=1)
    return (error**2).mean() + differences * (between**2).mean()


def fit_heads(features: Doubles, grades: Doubles, recipe: Recipe, seed: int) -> Mapping[Facet, Head]:
    """Heads by facet, fitted to features (pairs, F), NaN where one is missing, and grades (pairs, 3)."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    standard = Standardization.of(features)
    inputs = standard.inputs(features)
    wanted = torch.tensor(grades, dtype=torch.float32)
    direct, hidden = nn.Linear(features.shape[1], len(Facet)), nn.Linear(features.shape[1], recipe.hidden)
    out = nn.Linear(recipe.hidden, len(Facet), bias=False)
    nn.init.zeros_(out.weight)
    layers = nn.ModuleList([direct, hidden, out])
    optimizer = torch.optim.AdamW(
        layers.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    for _ in range(recipe.epochs):
        order = rng.permutation(len(inputs))
        for first in range(0, len(order), recipe.batch):
            batch = torch.tensor(order[first : first + recipe.batch])
            predicted = direct(inputs[batch]) + out(torch.tanh(hidden(inputs[batch])))
            loss = grade_loss(predicted, wanted[batch], recipe.differences)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return {facet: _head(standard, hidden, direct, out, place) for place, facet in enumerate(Facet)}


def _head(
    standard: Standardization, hidden: nn.Linear, direct: nn.Linear, out: nn.Linear, place: int
) -> Head:
    """One facet's head. A head has no constant: a hidden unit without inputs stands for it."""
    width = hidden.in_features
    constant = float(direct.bias.detach()[place]) / np.tanh(1.0)
    return Head(
        *standard,
        np.concatenate([_array(hidden.weight).T, np.zeros((width, 1))], axis=1),
        np.append(_array(hidden.bias), 1.0),
        _array(direct.weight)[place],
        np.append(_array(out.weight)[place], constant),
    )


def _array(parameter: Tensor) -> Doubles:
    return parameter.detach().double().numpy().copy()
