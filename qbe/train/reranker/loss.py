"""Losses over a query's candidates: pure functions of scores and grades, each (candidates,) float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

MARGIN = 0.5
"""SciFACE (2026), section 3.10."""
RELEVANT = 1.0
"""The grade from which on cross-entropy takes a candidate for relevant."""


def _differences(values: Tensor) -> Tensor:
    return values[:, None] - values[None, :]


def logistic(scores: Tensor, grades: Tensor) -> Tensor:
    """RankNet (Burges et al., 2005, eq. 3) over all pairs of unlike grades, weighted by their difference."""
    better = _differences(grades).clamp(min=0)
    losses = better * F.softplus(-_differences(scores))
    return losses.sum() / better.sum().clamp(min=1e-9)


def margin(scores: Tensor, grades: Tensor) -> Tensor:
    """Margin ranking on graded triplets (SciFACE, 2026, section 3.10), the mean over all of a query's.

    That is what sampling triplets anew each epoch estimates.
    """
    better = _differences(grades) > 0
    losses = F.relu(MARGIN - _differences(scores)) * better
    return losses.sum() / better.sum().clamp(min=1)


def listwise(scores: Tensor, grades: Tensor) -> Tensor:
    """ListNet (Cao et al., 2007, section 4.1, top one): cross-entropy of softmax(grades), softmax(scores)."""
    return -(torch.softmax(grades, 0) * torch.log_softmax(scores, 0)).sum()


def cross_entropy(scores: Tensor, grades: Tensor) -> Tensor:
    """Each candidate by itself, relevant or not (Nogueira et al., 2020, eq. 1), as a mean."""
    return F.binary_cross_entropy_with_logits(scores, (grades >= RELEVANT).float())


def margin_mse(scores: Tensor, grades: Tensor) -> Tensor:
    """Margin-MSE (Hofstätter et al., 2020, section 3.2): a teacher's differences of scores are to be met.

    The teacher's scores stand in the place of grades. The mean over all pairs is twice the variance of the
    errors.
    """
    return 2 * (scores - grades).var(correction=0)


LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic": logistic,
    "margin": margin,
    "listwise": listwise,
    "cross-entropy": cross_entropy,
    "margin-mse": margin_mse,
}
