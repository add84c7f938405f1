"""Fitting the heads: networks over features that rank what a paper cites above its other candidates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from qbe.grade.head import Head
from qbe.train.citation.recipe import HeadSchedule
from qbe.train.standardization import Standardization

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
