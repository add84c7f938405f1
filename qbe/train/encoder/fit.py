"""Fitting an encoder to co-cited pairs."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence

import numpy as np
import torch

from qbe.train import fitting
from qbe.train.encoder.batches import Pair, WindowTokenizer, read_triplets
from qbe.train.encoder.loss import OBJECTIVES
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe
from qbe.train.fitting import Checkpoints, DevScore, LoopSettings, Progress
from qbe.train.weights import trainable

log = logging.getLogger(__name__)


class Fit:
    """An encoder network and the recipe by which it is trained."""

    def __init__(self, network: EncoderNetwork, tokenizer: WindowTokenizer, recipe: Recipe) -> None:
        self.network, self.recipe = network, recipe
        self._tokenizer = tokenizer

    def run(
        self, pairs: Sequence[Pair], dev: Sequence[Pair], seed: int, checkpoints: Checkpoints
    ) -> Progress:
        """Train on pairs by `qbe.train.fitting.fit`; scores on dev are minus the losses there.

        The order of the pairs, their negatives and dropout follow from the seed and the number of the step.
        """
        schedule = self.recipe.schedule
        settings = LoopSettings(schedule.epochs, schedule.clip, schedule.patience, schedule.warm_up)
        return fitting.fit(_Learner(self, pairs, dev, seed), settings, seed, checkpoints)

    def backward(self, pairs: Sequence[Pair], rng: random.Random) -> float:
        """Compute the gradients of the mean loss of pairs, batch by batch, and return that loss."""
        torch.manual_seed(rng.getrandbits(63))  # for dropout
        self.network.train()
        total = 0.0
        for batch in self._batches(pairs):
            triplets = read_triplets(self.network, self._tokenizer, batch, rng)
            if triplets is None:
                continue
            losses = OBJECTIVES[self.recipe.objective](triplets, self.recipe.settings)
            (losses.sum() / len(pairs)).backward()  # type: ignore[no-untyped-call]
            total += losses.sum().item()
        return total / len(pairs)

    @torch.no_grad()
    def loss(self, pairs: Sequence[Pair]) -> float:
        """The mean loss of pairs, without dropout, against negatives that are the same in every call."""
        self.network.eval()
        rng = random.Random("dev")
        order = rng.sample(list(pairs), len(pairs))
        losses = []
        for batch in self._batches(order):
            triplets = read_triplets(self.network, self._tokenizer, batch, rng)
            if triplets is not None:
                losses += OBJECTIVES[self.recipe.objective](triplets, self.recipe.settings).tolist()
        return float(np.mean(losses)) if losses else math.nan

    def _batches(self, pairs: Sequence[Pair]) -> list[Sequence[Pair]]:
        size = self.recipe.schedule.batch
        return [pairs[begin : begin + size] for begin in range(0, len(pairs), size)]


class _Learner:
    """A fit to some pairs, for `qbe.train.fitting.fit`."""

    def __init__(self, fit: Fit, pairs: Sequence[Pair], dev: Sequence[Pair], seed: int) -> None:
        schedule = fit.recipe.schedule
        self.network: torch.nn.Module = fit.network
        self._fit, self._pairs, self._dev, self._seed = fit, pairs, dev, seed
        self._pairs_per_step = min(schedule.batch * schedule.accumulate, len(pairs))
        self.steps_per_epoch = len(pairs) // self._pairs_per_step
        self._epoch, self._order = -1, list[int]()

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW; biases and normalizations do not decay."""
        parts, schedule = trainable(self.network).values(), self._fit.recipe.schedule
        return torch.optim.AdamW(
            [
                {"params": [part for part in parts if part.dim() > 1], "weight_decay": schedule.weight_decay},
                {"params": [part for part in parts if part.dim() <= 1], "weight_decay": 0.0},
            ],
            lr=schedule.learning_rate,
        )

    def backward(self, step: int) -> Sequence[float]:
        """Compute the gradients of a step; its mean loss."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            count = len(self._pairs)
            self._epoch, self._order = (
                epoch,
                random.Random(f"{self._seed}-{epoch}").sample(range(count), count),
            )
        begin = place * self._pairs_per_step
        pairs = [self._pairs[number] for number in self._order[begin : begin + self._pairs_per_step]]
        return [self._fit.backward(pairs, random.Random(f"{self._seed}-{step}"))]

    def score(self) -> DevScore:
        """Minus the loss on dev."""
        loss = self._fit.loss(self._dev)
        return DevScore(-loss, f"loss on dev {loss:.4f}")
