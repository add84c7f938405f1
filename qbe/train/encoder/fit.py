"""Co-cited pairs as triplets, and an encoder that is trained on them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qbe.encode.tokenizer import PaperTokenizer, Window, passes
from qbe.models.encoder_format import TITLE_ABSTRACT
from qbe.train.encoder.data import Pair
from qbe.train.encoder.loss import Triplets, losses
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe
from qbe.train.trainer import DevScore
from qbe.train.weights import trainable
from qbe.types import Paper


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


class Step(NamedTuple):
    """The pairs of a step, and the generator of its dropout and negatives."""

    pairs: Sequence[Pair]
    rng: random.Random


class EncoderTask:
    """An encoder network that learns from pairs; its scores are losses on dev, negated.

    The order of the pairs, their negatives and dropout follow from the seed and the number of the step.
    """

    def __init__(
        self,
        network: EncoderNetwork,
        tokenizer: WindowTokenizer,
        recipe: Recipe,
        pairs: Sequence[Pair],
        dev: Sequence[Pair],
    ) -> None:
        self.network = network
        self._tokenizer, self._recipe, self._pairs, self._dev = tokenizer, recipe, pairs, dev
        self._pairs_per_step = min(recipe.batch * recipe.accumulate, len(pairs))
        self.steps_per_epoch = len(pairs) // self._pairs_per_step

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW; biases and normalizations do not decay."""
        parts = trainable(self.network).values()
        decays = {True: self._recipe.weight_decay, False: 0.0}
        groups = [
            {"params": [part for part in parts if (part.dim() > 1) is matrices], "weight_decay": decay}
            for matrices, decay in decays.items()
        ]
        return torch.optim.AdamW(groups, lr=self._recipe.rate)

    def batches(self, seed: int) -> Iterator[Step]:
        """The pairs of each step."""
        count, size = len(self._pairs), self._pairs_per_step
        for epoch in range(self._recipe.epochs):
            order = random.Random(f"{seed}-{epoch}").sample(range(count), count)
            for place in range(self.steps_per_epoch):
                pairs = [self._pairs[number] for number in order[place * size : (place + 1) * size]]
                yield Step(pairs, random.Random(f"{seed}-{epoch * self.steps_per_epoch + place}"))

    def losses(self, batch: Step) -> Iterator[Tensor]:
        """The mean loss of the pairs of a step, in parts."""
        torch.manual_seed(batch.rng.getrandbits(63))  # for dropout
        for part in self._losses(batch.pairs, batch.rng):
            yield part.sum() / len(batch.pairs)

    def score(self) -> DevScore:
        """Minus the loss on dev."""
        loss = self.dev_loss()
        return DevScore(-loss, f"loss on dev {loss:.4f}")

    @torch.no_grad()
    def dev_loss(self) -> float:
        """The mean loss on dev, without dropout, against negatives that are the same in every call."""
        self.network.eval()
        rng = random.Random("dev")
        order = rng.sample(list(self._dev), len(self._dev))
        each = [loss for part in self._losses(order, rng) for loss in part.tolist()]
        return float(np.mean(each)) if each else math.nan

    def _losses(self, pairs: Sequence[Pair], rng: random.Random) -> Iterator[Tensor]:
        """The losses of the pairs that have a negative, by batches that are encoded in one pass."""
        size = self._recipe.batch
        for begin in range(0, len(pairs), size):
            triplets = self._triplets(pairs[begin : begin + size], rng)
            if triplets is not None:
                yield losses(self._recipe.objective, triplets, self._recipe.settings)

    def _triplets(self, pairs: Sequence[Pair], rng: random.Random) -> Triplets | None:
        drawn = draw_negatives(pairs, rng)
        if not drawn:
            return None
        papers = [pair.query for pair in pairs] + [pair.positive for pair in pairs]
        vectors = self.network([self._tokenizer.window(paper) for paper in papers])
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
