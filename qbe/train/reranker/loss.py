"""Ranking losses over the candidates of a query: pure functions of scores and grades.

Both are (candidates,) float32; the loss is a scalar. The losses over pairs of candidates also take
``emphasis`` (candidates, candidates) float32, by which the loss of each pair, the better one first, is
multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.evaluate.crossed import GAP

MARGIN = 0.5
"""Of the margin ranking loss: SciFACE (2026), section 3.10."""
RELEVANT = 1.0
"""The smallest grade of candidates that are relevant for the cross-entropy loss."""


def _differences(values: Tensor) -> Tensor:
    return values[:, None] - values[None, :]


def crossed_emphasis(grades: Tensor, facet: int, crossed: float) -> Tensor:
    """What each pair of candidates counts in the loss of a facet, of ``grades`` (candidates, facets).

    A pair that is crossed (`qbe.evaluate.crossed`: for another facet the worse candidate is the better one
    by GAP grades or more) counts 1 + ``crossed``, any other 1.

    >>> crossed_emphasis(torch.tensor([[0.0, 2.0], [3.0, 0.5]]), facet=1, crossed=3.0)
    tensor([[1., 4.],
            [1., 1.]])
    """
    difference = grades[:, None] - grades[None, :]  # (candidates, candidates, facets)
    others = [other for other in range(grades.shape[1]) if other != facet]
    opposed = (difference[:, :, others] <= -GAP).any(-1) & (difference[:, :, facet] >= GAP)
    return 1 + crossed * opposed


def logistic(scores: Tensor, grades: Tensor, emphasis: Tensor | None = None) -> Tensor:
    """RankNet (Burges et al., 2005, eq. 3) over pairs of different grades, weighted by the difference.

    >>> logistic(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 1.0]))  # log(1 + exp(0)), weight 2, over 2
    tensor(0.6931)
    """
    better = _differences(grades).clamp(min=0)
    if emphasis is not None:
        better = better * emphasis
    losses = better * F.softplus(-_differences(scores))
    return losses.sum() / better.sum().clamp(min=1e-9)


def margin(scores: Tensor, grades: Tensor, emphasis: Tensor | None = None) -> Tensor:
    """Margin ranking loss (SciFACE, 2026, section 3.10), the mean over all pairs of different grades.

    It is the expectation of the loss of triplets that are sampled in each epoch.

    >>> margin(torch.tensor([0.25, 0.0]), torch.tensor([3.0, 1.0]))  # 0.5 - (0.25 - 0)
    tensor(0.2500)
    """
    better = (_differences(grades) > 0).float()
    if emphasis is not None:
        better = better * emphasis
    losses = F.relu(MARGIN - _differences(scores)) * better
    return losses.sum() / better.sum().clamp(min=1)


def listwise(scores: Tensor, grades: Tensor) -> Tensor:
    """ListNet (Cao et al., 2007, section 4.1, top-one probabilities): cross-entropy of the softmax of scores
    against the softmax of grades.

    >>> listwise(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]))  # the entropy of two halves, log(2)
    tensor(0.6931)
    """
    return -(torch.softmax(grades, 0) * torch.log_softmax(scores, 0)).sum()


def cross_entropy(scores: Tensor, grades: Tensor) -> Tensor:
    """Pointwise binary cross-entropy (Nogueira et al., 2020, eq. 1), the mean over candidates.

    >>> from math import log
    >>> cross_entropy(torch.tensor([log(3), -log(3)]), torch.tensor([2.0, 0.0]))  # -log(3/4) for both
    tensor(0.2877)
    """
    return F.binary_cross_entropy_with_logits(scores, (grades >= RELEVANT).float())


def margin_mse(scores: Tensor, grades: Tensor) -> Tensor:
    """Margin-MSE (Hofstätter et al., 2020, section 3.2): distillation of a teacher's differences of scores.

    The teacher's scores take the place of grades. The mean over all pairs equals twice the variance of the
    errors, which is what is computed.

    >>> margin_mse(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 0.0]))  # (1 - 3) ** 2 in 2 of 4 ordered pairs
    tensor(2.)
    """
    return 2 * (scores - grades).var(correction=0)


LOSSES: Mapping[str, Callable[..., Tensor]] = {
    "logistic": logistic,
    "margin": margin,
    "listwise": listwise,
    "cross-entropy": cross_entropy,
    "margin-mse": margin_mse,
}
