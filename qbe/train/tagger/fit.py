"""Fitting a tagger head to labels or to the probabilities of other models, and predicting with it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qbe.train import trainer
from qbe.train.tagger.data import Tokens
from qbe.train.tagger.network import LABEL_COUNT, Head, Teacher

Floats = NDArray[np.float32]
WARM_UP = 0.1


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
    """
    targets = torch.zeros_like(scores)
    weights = torch.zeros(scores.shape[:2])
    for i, example in enumerate(examples):
        count = len(example.paper.spans)
        targets[i, :count] = torch.from_numpy(example.targets[:count])
        weights[i, :count] = torch.from_numpy(example.weights[:count])
    marginals = model.chain.log_marginals(scores, present)
    return -((marginals * targets).sum(-1) * weights).sum() / weights.sum()


class TaggerTask:
    """A head or a teacher that learns from examples; its last epoch is kept.

    Matrix products run in bfloat16, which halves the time where the processor supports it.
    """

    def __init__(self, network: Head | Teacher, examples: Sequence[Example], schedule: Schedule) -> None:
        self.network = network
        self._examples, self._schedule = examples, schedule
        self.steps_per_epoch = -(-len(examples) // schedule.papers)

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW; a teacher's encoder learns more slowly than its head."""
        groups = self.network.parameter_groups(self._schedule.learning_rate)
        return torch.optim.AdamW(groups, weight_decay=self._schedule.weight_decay)

    def batches(self, seed: int) -> Iterator[list[Example]]:
        """The examples of each step, of similar length."""
        rng = random.Random(seed)
        lengths = [len(example.paper.ids) for example in self._examples]
        for _ in range(self._schedule.epochs):
            for group in batches(lengths, self._schedule.papers, rng):
                yield [self._examples[i] for i in group]

    def losses(self, batch: list[Example]) -> Iterator[Tensor]:
        """The loss of a step."""
        papers = self.network.collate([example.paper for example in batch])
        with torch.autocast("cpu", torch.bfloat16):
            scores = self.network(*papers)
        yield loss(self.network, scores.float(), papers.present, batch)

    def score(self) -> None:
        """None: the schedule says when to stop."""


def fit(
    network: Head | Teacher, examples: Sequence[Example], schedule: Schedule, seed: int, path: Path
) -> None:
    """Fit a network, with its checkpoints in the file ``path``; errors are those of the trainer."""
    steps = trainer.Schedule(schedule.epochs, schedule.clip, warm_up=WARM_UP)
    trainer.fit(TaggerTask(network, examples, schedule), steps, seed, path)


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
    """Target probabilities (sentences, labels) float32 of labels, given by number."""
    return np.eye(LABEL_COUNT, dtype=np.float32)[list(labels)]
