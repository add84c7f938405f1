"""Features brought to mean 0 and deviation 1, as the networks of `qbe.grade.head` read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
