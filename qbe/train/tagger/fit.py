"""Fitting a tagger head to labels or to the probabilities of other models, and predicting with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qbe.train.fitting import ScheduledOptimizer
from qbe.train.tagger.data import Tokens
from qbe.train.tagger.network import LABEL_COUNT, Head, Teacher

Floats = NDArray[np.float32]


class Example(NamedTuple):
    """A paper with target probabilities (sentences, labels) and weights (sentences,) in the loss."""

    paper: Tokens
    targets: Floats
    weights: Floats


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a head is fitted.

    AdamW with ``papers`` a step; the learning rate rises linearly over a tenth of the steps, then falls
    linearly to 0. Gradients are clipped to a norm of ``clip``.
    """

    epochs: int
    learning_rate: float = 1e-3
    papers: int = 16
    weight_decay: float = 0.05
    clip: float = 1.0


def batches(lengths: Sequence[int], size: int, rng: random.Random | None) -> list[list[int]]:
    """Positions of papers in groups of at most ``size`` and of similar length (in tokens).

    With ``rng`` the groups are in random order, and up to 20 is added to each length at random, so that they
    differ from epoch to epoch.

    >>> batches([30, 90, 40, 80], 2, None)
    [[0, 2], [3, 1]]
    """
    noise = [rng.random() * 20 if rng else 0.0 for _ in lengths]
    ranked = sorted(range(len(lengths)), key=lambda i: lengths[i] + noise[i])
    groups = [ranked[first : first + size] for first in range(0, len(ranked), size)]
    if rng:
        rng.shuffle(groups)
    return groups


def loss(model: Head | Teacher, scores: Tensor, present: Tensor, examples: Sequence[Example]) -> Tensor:
    """Cross-entropy of the marginals of the label chain, weighted by sentence (a scalar).

    ``scores`` (papers, sentences, labels) are those before the chain, ``present`` that of a `Batch`.

    With one-hot targets and the annotators' confidences as weights uncertain labels count less; with
    probabilities as targets this is distillation (Hinton et al., 2015, section 2, at temperature 1).

    >>> from types import SimpleNamespace
    >>> from qbe.train.tagger.network import Chain
    >>> example = Example(Tokens(None, ((0, 1),), None, None), one_hot([2]), np.float32([0.5]))
    >>> model, scores, present = SimpleNamespace(chain=Chain()), torch.zeros(1, 1, 5), torch.tensor([[True]])
    >>> round(loss(model, scores, present, [example]).item(), 4)  # all labels have 1/5: log(5)
    1.6094
    """
    targets = torch.zeros_like(scores)
    weights = torch.zeros(scores.shape[:2])
    for i, example in enumerate(examples):
        count = len(example.paper.spans)
        targets[i, :count] = torch.from_numpy(example.targets[:count])
        weights[i, :count] = torch.from_numpy(example.weights[:count])
    marginals = model.chain.log_marginals(scores, present)
    return -((marginals * targets).sum(-1) * weights).sum() / weights.sum()


def fit(
    model: Head | Teacher,
    examples: Sequence[Example],
    schedule: Schedule,
    seed: int,
    after_epoch: Callable[[int, float], Any],
) -> None:
    """Fit a model; ``after_epoch`` is called with the number of each epoch (from 1) and its mean loss.

    Matrix products run in bfloat16, which halves the time where the processor supports it.
    """
    rng = random.Random(seed)
    torch.manual_seed(seed)
    groups = model.parameter_groups(schedule.learning_rate)
    steps = schedule.epochs * -(-len(examples) // schedule.papers)
    optimizer = ScheduledOptimizer(
        torch.optim.AdamW(groups, weight_decay=schedule.weight_decay),
        model.parameters(),
        steps,
        clip=schedule.clip,
    )
    lengths = [len(example.paper.ids) for example in examples]
    step = 0
    model.train()
    for epoch in range(1, schedule.epochs + 1):
        losses = []
        for group in batches(lengths, schedule.papers, rng):
            chosen = [examples[i] for i in group]
            batch = model.collate([example.paper for example in chosen])
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(*batch)
            value = loss(model, scores.float(), batch.present, chosen)
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step(step)
            step += 1
            losses.append(value.item())
        after_epoch(epoch, sum(losses) / len(losses))
    model.eval()


def predict(model: Head | Teacher, papers: Sequence[Tokens]) -> Iterator[Floats]:
    """Probabilities (sentences, labels) of each paper, in order."""
    model.eval()
    probabilities: dict[int, Floats] = {}
    with torch.inference_mode():
        for group in batches([len(paper.ids) for paper in papers], 16, None):
            batch = model.collate([papers[i] for i in group])
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(*batch)
            marginals = model.chain.log_marginals(scores.float(), batch.present).exp().numpy()
            for row, i in enumerate(group):
                probabilities[i] = marginals[row, : len(papers[i].spans)]
    yield from (probabilities[i] for i in range(len(papers)))


def one_hot(labels: Sequence[int]) -> Floats:
    """Target probabilities (sentences, labels) float32 of labels, given by number.

    >>> one_hot([2, 0]).tolist()
    [[0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    """
    return np.eye(LABEL_COUNT, dtype=np.float32)[list(labels)]
