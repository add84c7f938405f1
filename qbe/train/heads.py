"""Fitting the small networks of `qbe.models.grade.head`, by the order of candidates or by their grades."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.models.grade.head import Head
from qbe.models.grade.model import OUTPUTS
from qbe.query import OTHER_TO, SIMILAR_FROM
from qbe.train.trainer import Schedule, fit, shuffled
from qbe.types import Facet

Doubles = NDArray[np.float64]

SMALLEST_SCALE = 1e-6
"""The scale of a feature that hardly varies."""


class _Standardization(NamedTuple):
    """The ``mean`` (F,) and the ``scale`` (F,), a standard deviation, of each of F features."""

    mean: Doubles
    scale: Doubles

    @classmethod
    def of(cls, features: Doubles) -> _Standardization:
        """That of features (candidates, F), over those that are known (not NaN)."""
        scale = np.maximum(np.nanstd(features, axis=0), SMALLEST_SCALE)
        return cls(np.nanmean(features, axis=0), scale)

    def inputs(self, features: Doubles) -> Tensor:
        """Features (candidates, F) brought to mean 0 and deviation 1, float32; one that is NaN becomes 0."""
        return torch.tensor(np.nan_to_num((features - self.mean) / self.scale), dtype=torch.float32)


def _array(parameter: Tensor) -> Doubles:
    return parameter.detach().double().numpy().copy()


# Heads that rank what a paper cites above its other candidates.


class FeatureList(NamedTuple):
    """The candidates of one query: ``features`` (candidates, F), and which of them are ``cited``
    (candidates,) bool; how many papers it cites in ``total``, found or not.
    """

    features: Doubles
    cited: NDArray[np.bool_]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSchedule:
    """How a ranking head is fitted: ``epochs`` at most over the lists, one a step."""

    epochs: int = 12
    patience: int = 3
    hidden: int = 16
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2


def _adamw(network: nn.Module, recipe: HeadSchedule | GradeRecipe) -> torch.optim.Optimizer:
    return torch.optim.AdamW(network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)


class _RankingHead(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.randn(width, hidden) / width**0.5)
        self.bias, self.direct = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(width))
        self.out = nn.Parameter(torch.zeros(hidden))

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = inputs @ self.direct + torch.tanh(inputs @ self.hidden + self.bias) @ self.out
        return scores

    def head(self, standard: _Standardization) -> Head:
        return Head(*standard, *map(_array, (self.hidden, self.bias, self.direct, self.out)))


class _RankingTask:
    """The cross-entropy of the softmax of scores against equal shares for what is cited."""

    def __init__(
        self, lists: Sequence[FeatureList], schedule: HeadSchedule, figure: Callable[[Head], float]
    ) -> None:
        together = np.concatenate([each.features for each in lists])
        self.standard, self._schedule, self._figure = _Standardization.of(together), schedule, figure
        self.network = _RankingHead(together.shape[1], schedule.hidden)
        self._inputs = [self.standard.inputs(each.features) for each in lists]
        self._cited = [torch.tensor(each.cited) for each in lists]
        self._usable = [place for place, each in enumerate(lists) if each.cited.any()]
        self.steps_per_epoch = len(self._usable)

    def optimizer(self) -> torch.optim.Optimizer:
        return _adamw(self.network, self._schedule)

    def batches(self, seed: int) -> Iterator[list[int]]:
        return shuffled(self._usable, 1, self._schedule.epochs, np.random.default_rng(seed))

    def losses(self, batch: list[int]) -> Iterator[Tensor]:
        for place in batch:
            yield -torch.log_softmax(self.network(self._inputs[place]), 0)[self._cited[place]].mean()

    def score(self) -> float:
        return self._figure(self.network.head(self.standard))


def fit_head(
    lists: Sequence[FeatureList],
    schedule: HeadSchedule,
    seed: int,
    figure: Callable[[Head], float],
    path: Path,
) -> Head:
    """Fit a head that ranks, by ListNet (Cao et al., 2007, section 4.1), with its checkpoints in ``path``.

    The best epoch by ``figure``, which measures a head on dev, is returned.
    """
    torch.manual_seed(seed)  # for the weights at the start
    task = _RankingTask(lists, schedule, figure)
    fit(task, Schedule(schedule.epochs, patience=schedule.patience), seed, path)
    return task.network.head(task.standard)


# Heads whose scores are grades.


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRecipe:
    """How the head of the grade model is fitted.

    Grades are fitted by squared error; with the weight ``differences`` those of two facets of a candidate,
    which rank it where one facet is liked and the other disliked; and with the weight ``chances`` whether a
    grade is at least SIMILAR_FROM and at most OTHER_TO (`qbe.query`), by cross-entropy. Pairs of papers
    whose grades by background and method lie at least one apart weigh ``1 + crossed``: in most pairs the
    facets agree, so that the others alone teach to tell them apart.
    """

    epochs: int = 16
    batch: int = 512
    hidden: int = 48
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    differences: float = 1.0
    chances: float = 1.0
    crossed: float = 4.0


_FACETS = len(Facet)
_PAIRS = tuple(combinations(range(_FACETS), 2))


def grade_loss(predicted: Tensor, grades: Tensor, recipe: GradeRecipe) -> Tensor:
    """The loss of scores (pairs, 9), as of `qbe.models.grade.model.GradeModel`, against grades (pairs, 3).

    >>> recipe = GradeRecipe(differences=0.5, chances=0.0)
    >>> float(grade_loss(torch.tensor([[1.0] + 8 * [0.0]]), torch.zeros(1, 3), recipe))  # 1/3 + 0.5 * 2/3
    0.666...
    """
    weights = 1 + recipe.crossed * ((grades[:, :1] - grades[:, 1:2]).abs() >= 1)
    error = predicted[:, :_FACETS] - grades
    between = torch.stack([error[:, first] - error[:, second] for first, second in _PAIRS], dim=1)
    entropy = F.binary_cross_entropy_with_logits(predicted[:, _FACETS:], _as_asked(grades), reduction="none")
    parts = (error**2, recipe.differences * between**2, recipe.chances * entropy)
    return torch.stack([(weights * part).mean() for part in parts]).sum()


def _as_asked(grades: Tensor) -> Tensor:
    """Whether grades (pairs, 3) are of similar papers and whether they are of other ones, (pairs, 6)."""
    return torch.cat([grades >= SIMILAR_FROM, grades <= OTHER_TO], dim=1).to(grades.dtype)


class _GradeHead(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.direct, self.hidden = nn.Linear(width, OUTPUTS), nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, OUTPUTS, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.direct(inputs) + self.out(torch.tanh(self.hidden(inputs)))
        return scores

    def head(self, standard: _Standardization) -> Head:
        """The same as a `Head`. It has no constant: a hidden unit without inputs stands for it."""
        constants = _array(self.direct.bias) / np.tanh(1.0)
        return Head(
            *standard,
            np.concatenate([_array(self.hidden.weight).T, np.zeros((self.hidden.in_features, 1))], axis=1),
            np.append(_array(self.hidden.bias), 1.0),
            _array(self.direct.weight).T,
            np.concatenate([_array(self.out.weight).T, constants[None]]),
        )


class _GradeTask:
    """Grades of pairs; the last epoch is kept."""

    def __init__(self, features: Doubles, grades: Doubles, recipe: GradeRecipe) -> None:
        self.standard, self._recipe = _Standardization.of(features), recipe
        self.network = _GradeHead(features.shape[1], recipe.hidden)
        self._inputs = self.standard.inputs(features)
        self._grades = torch.tensor(grades, dtype=torch.float32)
        self.steps_per_epoch = -(-len(grades) // recipe.batch)

    def optimizer(self) -> torch.optim.Optimizer:
        return _adamw(self.network, self._recipe)

    def batches(self, seed: int) -> Iterator[list[int]]:
        places, recipe = range(len(self._inputs)), self._recipe
        return shuffled(places, recipe.batch, recipe.epochs, np.random.default_rng(seed))

    def losses(self, batch: list[int]) -> Iterator[Tensor]:
        yield grade_loss(self.network(self._inputs[batch]), self._grades[batch], self._recipe)

    def score(self) -> None:
        """None: all epochs are done."""


def fit_grade_head(features: Doubles, grades: Doubles, recipe: GradeRecipe, seed: int, path: Path) -> Head:
    """A head of OUTPUTS scores, fitted to features (pairs, F), NaN where one is missing, and grades
    (pairs, 3), with checkpoints in the file ``path``.
    """
    torch.manual_seed(seed)  # for the weights at the start
    task = _GradeTask(features, grades, recipe)
    fit(task, Schedule(recipe.epochs), seed, path)
    return task.network.head(task.standard)


def calibrated(head: Head, features: Doubles, grades: Doubles) -> Head:
    """The head with log odds that are true of pairs with these features (pairs, F) and grades (pairs, 3): of
    each the line ``a + b * log odds`` with the smallest cross-entropy (Platt, *Probabilistic outputs for
    support vector machines*, 1999).

    Of the best of a hundred thousand papers fewer are what they seem than of the pairs of a training.
    """
    scores = head.scores(features)
    direct, out = head.direct.copy(), head.out.copy()
    targets = _as_asked(torch.from_numpy(grades)).numpy()
    hidden, bias = np.pad(head.hidden, ((0, 0), (0, 1))), np.append(head.bias, 1.0)
    constants = np.zeros(OUTPUTS)
    for place in range(_FACETS, OUTPUTS):
        constants[place], slope = platt(scores[:, place], targets[:, place - _FACETS])
        direct[:, place] *= slope
        out[:, place] *= slope
    return Head(head.mean, head.scale, hidden, bias, direct, np.vstack([out, constants / np.tanh(1.0)]))


def platt(log_odds: Doubles, targets: Doubles) -> tuple[float, float]:
    """Intercept and slope of a logistic regression, by Newton's method, with a little pull to 0 and 1; a step
    is halved until the loss falls.
    """
    inputs, prior = np.stack([np.ones_like(log_odds), log_odds], axis=1), np.array([0.0, 1.0])

    def loss(line: Doubles) -> float:
        scores = inputs @ line
        entropy = np.logaddexp(0, scores) - targets * scores
        return float(entropy.sum() + _PULL / 2 * ((line - prior) ** 2).sum())

    line = prior
    for _ in range(50):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ line, -50, 50)))
        gradient = inputs.T @ (targets - chances) - _PULL * (line - prior)
        curvature = (inputs.T * (chances * (1 - chances))) @ inputs + _PULL * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        while loss(line + step) > loss(line) and np.abs(step).max() > _SMALLEST_STEP:
            step = step / 2
        line = line + step
    return float(line[0]), float(line[1])


_PULL, _SMALLEST_STEP = 1e-3, 1e-9
