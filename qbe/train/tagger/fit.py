"""Fitting a tagger head to labels or to other models' probabilities, and reading it out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.train.tagger.network import LABEL_COUNT, Head
from qbe.train.tagger.states import Tokens
from qbe.train.tagger.teacher import Teacher

Floats = NDArray[np.float32]


class Example(NamedTuple):
    """A paper, what each sentence's label should be (sentences, labels), and how much each counts."""

    paper: Tokens
    targets: Floats
    weights: Floats


class Schedule(NamedTuple):
    """How a head is fitted: AdamW, warm-up over a tenth of the steps, then linearly down to nothing."""

    epochs: int
    learning_rate: float = 1e-3
    papers: int = 16
    weight_decay: float = 0.05
    clip: float = 1.0


def batches(lengths: Sequence[int], size: int, order: random.Random | None) -> list[list[int]]:
    """Places in groups of like length; in random order, and with lengths blurred, where one is given."""
    blur = [order.random() * 20 if order else 0.0 for _ in lengths]
    ranked = sorted(range(len(lengths)), key=lambda i: lengths[i] + blur[i])
    groups = [ranked[first : first + size] for first in range(0, len(ranked), size)]
    if order:
        order.shuffle(groups)
    return groups


def loss(model: Head | Teacher, scores: Tensor, present: Tensor, examples: Sequence[Example]) -> Tensor:
    """Cross-entropy of the chain's marginals, a sentence counting by its weight.

    With one-hot targets and the annotators' confidences as weights a doubtful label teaches little;
    with probabilities as targets this is distillation (Hinton et al., 2015, at temperature 1).
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
    """Fit a model; ``after_epoch`` is told the epoch (from 1) and its mean loss.

    Matrix products run in bfloat16, which halves the time where the processor has it.
    """
    order = random.Random(seed)
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(
        model.parameter_groups(schedule.learning_rate), weight_decay=schedule.weight_decay
    )
    lengths = [len(example.paper.ids) for example in examples]
    steps = schedule.epochs * -(-len(examples) // schedule.papers)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, steps))
    model.train()
    for epoch in range(1, schedule.epochs + 1):
        total = []
        for group in batches(lengths, schedule.papers, order):
            chosen = [examples[i] for i in group]
            batch = model.collate([example.paper for example in chosen])
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(*batch)
            value = loss(model, scores.float(), batch.present, chosen)
            value.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
            total.append(value.item())
        after_epoch(epoch, sum(total) / len(total))
    model.eval()


def _share(step: int, steps: int) -> float:
    warm = max(1, steps // 10)
    return min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))


def predict(model: Head | Teacher, papers: Sequence[Tokens]) -> Iterator[Floats]:
    """Probabilities (sentences, labels) of each paper, in order."""
    model.eval()
    found: dict[int, Floats] = {}
    with torch.inference_mode():
        for group in batches([len(paper.ids) for paper in papers], 16, None):
            batch = model.collate([papers[i] for i in group])
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(*batch)
            marginals = model.chain.log_marginals(scores.float(), batch.present).exp().numpy()
            for place, i in enumerate(group):
                found[i] = marginals[place, : len(papers[i].spans)]
    yield from (found[i] for i in range(len(papers)))


def one_hot(labels: Sequence[int]) -> Floats:
    """Labels as targets."""
    return np.eye(LABEL_COUNT, dtype=np.float32)[list(labels)]
