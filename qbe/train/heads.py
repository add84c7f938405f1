"""Fitting the small networks of qbe.grade.head, by the order of candidates or by their grades."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.grade.head import Head
from qbe.train.citation.recipe import HeadSchedule
from qbe.train.grades.recipe import Recipe
from qbe.types import Facet

Doubles = NDArray[np.float64]

SMALLEST_SCALE = 1e-6
"""The scale of a feature that hardly varies."""


class Standardization(NamedTuple):
    """The ``mean`` (F,) and the ``scale`` (F,), a standard deviation, of each of F features.

    >>> standard = Standardization.of(np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]]))
    >>> standard.mean.tolist(), standard.scale.tolist()
    ([2.0, 5.0], [1.0, 1e-06])
    >>> standard.inputs(np.array([[3.0, np.nan]]))
    tensor([[1., 0.]])
    """

    mean: Doubles
    scale: Doubles

    @classmethod
    def of(cls, features: Doubles) -> Standardization:
        """That of features (candidates, F), over those that are known (not NaN)."""
        scale = np.maximum(np.nanstd(features, axis=0), SMALLEST_SCALE)
        return cls(np.nanmean(features, axis=0), scale)

    def inputs(self, features: Doubles) -> Tensor:
        """Features (candidates, F) brought to mean 0 and deviation 1, float32; one that is NaN becomes 0."""
        return torch.tensor(np.nan_to_num((features - self.mean) / self.scale), dtype=torch.float32)


log = logging.getLogger(__name__)


class FeatureList(NamedTuple):
    """The candidates of one query: ``features`` (candidates, F), and which of them are ``cited``
    (candidates,) bool; how many papers it cites in ``total``, found or not.
    """

    features: NDArray[np.float64]
    cited: NDArray[np.bool_]
    total: int


def fit_head(
    lists: Sequence[FeatureList],
    schedule: HeadSchedule,
    seed: int,
    figure: Callable[[Head], float],
) -> Head:
    """Fit a head by the cross-entropy of the softmax of scores against equal shares for what is cited
    (ListNet; Cao et al., 2007, section 4.1). The best epoch by ``figure``, which measures a head on dev, is
    returned.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    together = np.concatenate([each.features for each in lists])
    standard = Standardization.of(together)
    width = together.shape[1]
    hidden = nn.Parameter(torch.randn(width, schedule.hidden) / width**0.5)
    bias, direct = nn.Parameter(torch.zeros(schedule.hidden)), nn.Parameter(torch.zeros(width))
    out = nn.Parameter(torch.zeros(schedule.hidden))
    optimizer = torch.optim.AdamW(
        [hidden, bias, direct, out], lr=schedule.learning_rate, weight_decay=schedule.weight_decay
    )

    def head() -> Head:
        weights = (part.detach().double().numpy().copy() for part in (hidden, bias, direct, out))
        return Head(*standard, *weights)

    inputs = [standard.inputs(each.features) for each in lists]
    usable = [place for place, each in enumerate(lists) if each.cited.any()]
    best, best_figure, best_epoch = head(), -1.0, 0
    for epoch in range(1, schedule.epochs + 1):
        for place in rng.permutation(usable):
            right = torch.tensor(lists[place].cited)
            scores = inputs[place] @ direct + torch.tanh(inputs[place] @ hidden + bias) @ out
            loss = -torch.log_softmax(scores, 0)[right].mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        measured = figure(head())
        log.info("epoch %d: dev %.4f", epoch, measured)
        if measured > best_figure:
            best, best_figure, best_epoch = head(), measured, epoch
        elif epoch - best_epoch >= schedule.patience:
            break
    return best


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
