"""The judge of candidates: a small neural network over their features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


class Head(NamedTuple):
    """A network of one hidden layer (``tanh``), of F features and H hidden units; all float64.

    Features are first brought to mean 0 and deviation 1 by ``mean`` and ``scale`` (F,), as of the training
    data; one that is not known (NaN) counts as the mean. ``hidden`` (F, H), ``bias`` (H,), ``direct`` (F,)
    and ``out`` (H,) are the weights: a score is linear in the features and in the hidden units.

    >>> one = np.ones(1)
    >>> head = Head(0 * one, 2 * one, np.ones((1, 1)), 0 * one, 3 * one, 0 * one)
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
