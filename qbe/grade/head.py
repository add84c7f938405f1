"""A small neural network over features of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


class Head(NamedTuple):
    """A network of one hidden layer (``tanh``), of F features and H hidden units; all float64.

    Features are first brought to mean 0 and deviation 1 by ``mean`` and ``scale`` (F,), as of the training
    data; one that is not known (NaN) counts as the mean. ``hidden`` (F, H), ``bias`` (H,), ``direct`` (F,)
    and ``out`` (H,) are the weights: a score is linear in the features and in the hidden units.

    >>> unit = np.ones(1)
    >>> head = Head(0 * unit, 2 * unit, np.ones((1, 1)), 0 * unit, 3 * unit, 0 * unit)
    >>> head.scores(np.array([[4.0], [np.nan]])).tolist()
    [6.0, 0.0]
    """

    mean: Doubles
    scale: Doubles
    hidden: Doubles
    bias: Doubles
    direct: Doubles
    out: Doubles

    def scores(self, features: Doubles) -> Doubles:
        """Scores (candidates,) of candidates by features (candidates, F); more is better."""
        inputs = np.nan_to_num((features - self.mean) / self.scale, nan=0.0)
        scores: Doubles = inputs @ self.direct + np.tanh(inputs @ self.hidden + self.bias) @ self.out
        return scores


def mean_head(heads: Sequence[Head]) -> Head:
    """A head whose scores are the means of the scores of heads over the same features.

    >>> ones = np.ones(1)
    >>> heads = [Head(0 * ones, ones, np.eye(1), 0 * ones, weight * ones, ones) for weight in (1.0, 3.0)]
    >>> features = np.array([[0.5]])
    >>> bool(np.isclose(mean_head(heads).scores(features), np.mean([h.scores(features) for h in heads])))
    True
    """
    return Head(
        heads[0].mean,
        heads[0].scale,
        np.concatenate([head.hidden for head in heads], axis=1),
        np.concatenate([head.bias for head in heads]),
        np.mean([head.direct for head in heads], axis=0),
        np.concatenate([head.out for head in heads]) / len(heads),
    )
