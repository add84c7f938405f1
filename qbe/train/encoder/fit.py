"""Fitting an encoder to co-cited pairs: batches of triplets and the loop."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from qbe.encode.tokenizer import PaperTokenizer
from qbe.encode.windows import Window, passes
from qbe.models.encoder_format import TITLE_ABSTRACT
from qbe.train import fitting
from qbe.train.encoder.cocitations import Alignment
from qbe.train.encoder.loss import OBJECTIVES, Triplets
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe
from qbe.train.fitting import Checkpoints, DevScore, LoopSettings
from qbe.train.weights import Progress, trainable
from qbe.types import Paper


class Pair(NamedTuple):
    """Two co-cited papers, the ids of the set that was cited, and the positions of two aligned sentences."""

    cited: frozenset[str]
    query: Paper
    positive: Paper
    alignment: Alignment = (0, 0)


class WindowTokenizer(NamedTuple):
    """How papers are tokenized: the tokenizer, the most tokens of a window, and the layout."""

    tokenizer: PaperTokenizer
    max_tokens: int
    layout: str = TITLE_ABSTRACT

    def window(self, paper: Paper) -> Window:
        """A paper's first window; the rest of a longer paper is not trained on."""
        sentences = [self.tokenizer.ids(sentence.text) for sentence in paper.sentences]
        title = self.tokenizer.ids(paper.title)
        return next(passes(title, sentences, self.tokenizer.special, self.max_tokens, self.layout))


def draw_negatives(pairs: Sequence[Pair], rng: random.Random) -> list[tuple[int, int]]:
    """For each pair (by its number) another one without a common paper, whose positive is its negative.

    The result has the numbers of both. A pair that shares papers with all others is left out. (The code of
    Mysore et al., 2022, takes a random permutation of the positives, which may assign a paper to its own
    query.)

    >>> paper = Paper("", "", ())
    >>> pairs = [Pair(frozenset(ids), paper, paper) for ids in ("ab", "ac", "cd")]
    >>> draw_negatives(pairs, random.Random(0))  # the second pair shares a paper with both others
    [(0, 2), (2, 0)]
    """
    drawn = []
    for number, pair in enumerate(pairs):
        others = [place for place, other in enumerate(pairs) if pair.cited.isdisjoint(other.cited)]
        if others:
            drawn.append((number, rng.choice(others)))
    return drawn


def read_triplets(
    network: EncoderNetwork, tokenizer: WindowTokenizer, pairs: Sequence[Pair], rng: random.Random
) -> Triplets | None:
    """A batch of pairs, encoded by the network in one pass; None where no pair has a negative."""
    drawn = draw_negatives(pairs, rng)
    if not drawn:
        return None
    papers = [pair.query for pair in pairs] + [pair.positive for pair in pairs]
    vectors = network([tokenizer.window(paper) for paper in papers])
    device = vectors.whole.device
    numbers, others = (torch.tensor(column, device=device) for column in zip(*drawn, strict=True))
    alignments = torch.tensor([pair.alignment for pair in pairs], device=device)
    return Triplets(
        vectors.at(numbers),
        vectors.at(len(pairs) + numbers),
        vectors.at(len(pairs) + others),
        alignments[numbers],
        alignments[others, 1],
    )


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
