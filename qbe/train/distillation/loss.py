"""Losses of distillation: how far a student's scores and cosines are from those of a teacher."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor


def soft_logistic(scores: Tensor, teacher: Tensor) -> Tensor:
    """RankNet with the teacher's probabilities as targets: the mean over all pairs of candidates.

    ``scores`` and ``teacher`` (..., candidates). A candidate is better than another with the probability of
    the sigmoid of their difference (Burges et al., 2005, eq. 3). The loss is the Kullback-Leibler divergence
    of the student's probabilities from the teacher's: 0 where all differences are the same.

    >>> soft_logistic(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 2.0]))
    tensor(0.)
    >>> from math import log
    >>> apart = torch.tensor([log(3.0), 0.0])  # 3/4 log(3/2) + 1/4 log(1/2), in 2 of 4 ordered pairs
    >>> soft_logistic(torch.zeros(2), apart)
    tensor(0.0654)
    """
    differences = scores[..., :, None] - scores[..., None, :]
    wanted = teacher[..., :, None] - teacher[..., None, :]
    probabilities = torch.sigmoid(wanted)

    def cross_entropy(logits: Tensor) -> Tensor:
        return F.softplus(logits) - probabilities * logits

    return (cross_entropy(differences) - cross_entropy(wanted)).mean()


def relational(student: Sequence[Tensor], teacher: Sequence[Tensor], places: Tensor) -> Tensor:
    """The mean squared difference of the cosines of sentences of different papers (Park et al., 2019,
    *Relational knowledge distillation*, with cosines as the relation).

    For each facet ``student`` and ``teacher`` have vectors of unit length (sentences, dimension), whose
    dimensions may differ; ``places`` (sentences,) int64 is the paper of each sentence.

    >>> axes = torch.eye(2)
    >>> relational([axes], [axes[[0, 0]]], torch.tensor([0, 1]))  # (0 - 1) ** 2
    tensor(1.)
    """
    different = places[:, None] != places[None, :]
    errors = [
        ((left @ left.T - right @ right.T)[different] ** 2).mean()
        for left, right in zip(student, teacher, strict=True)
    ]
    return torch.stack(errors).mean()
