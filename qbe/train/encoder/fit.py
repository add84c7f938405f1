"""A sentence encoder in PyTorch, and its training on triplets of co-cited pairs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.errors import UsageError, check_positive
from qbe.models.export.pytorch import load_encoder, positions
from qbe.models.formats import L2, MEAN, TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, EncoderFormat
from qbe.models.tokenizer import PaperTokenizer, Window, passes
from qbe.train.encoder.data import Pair
from qbe.train.encoder.loss import DEFAULT_SETTINGS, OBJECTIVES, Settings, Triplets, Vectors, losses
from qbe.train.trainer import Schedule
from qbe.train.weights import adamw
from qbe.types import Paper

MULTIPLE = 16
"""The tokens of a batch are padded to a multiple of this: oneDNN compiles its products for each shape."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that is chosen about an encoder's training, apart from data and seeds.

    Distances are those of vectors as they are (``similarity`` "l2"), or scaled to unit length ("cosine").
    AdamW at ``learning_rate`` (None: the objective's), which rises linearly over a share ``warm_up`` of the
    steps and then falls linearly to 0. A step sees ``accumulate`` batches of ``batch`` pairs; negatives are
    drawn within a batch. Gradients are clipped to a norm of ``clip``; ``weight_decay`` is not applied to
    biases and normalizations. ``patience`` epochs without a lower loss on dev end the training. Raises
    UsageError for numbers out of range.

    >>> Recipe("ot").format.layout, Recipe("ot").rate
    ('title-sep-abstract', 3e-05)
    >>> Recipe(epochs=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `epochs` of at least 1, found 0
    """

    objective: str = "ot"
    similarity: str = L2
    epochs: int = 1
    learning_rate: float | None = None
    batch: int = 10
    accumulate: int = 3
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int = 2
    settings: Settings = DEFAULT_SETTINGS

    def __post_init__(self) -> None:
        """Raise UsageError for numbers out of their ranges."""
        if self.epochs < 1:
            raise UsageError(f"expected `epochs` of at least 1, found {self.epochs}")
        check_positive("learning_rate", self.rate)

    @property
    def rate(self) -> float:
        """The full learning rate."""
        return OBJECTIVES[self.objective].rate if self.learning_rate is None else self.learning_rate

    @property
    def format(self) -> EncoderFormat:
        """How the trained encoder is to be read: as it was in training."""
        return EncoderFormat.pooled(TITLE_SEP_ABSTRACT, MEAN, self.similarity)

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe."""
        return Schedule(self.epochs, self.clip, self.patience, self.warm_up)


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


class EncoderNetwork(nn.Module):
    """A BERT-family encoder; all parameters are trained except its pooler, which no vector uses.

    A sentence's vector is the mean of its tokens' last hidden states, a paper's the mean of all tokens' (as
    in `qbe.models.encoder`). Matrix products run in ``dtype``, everything else in single precision.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, *, unit: bool = False) -> None:
        """Load the model in ``folder``; ``unit`` scales vectors to length 1, as an index does.

        Raises ModelError when it cannot be loaded.
        """
        from transformers.utils.logging import disable_progress_bar

        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]  # it would take a second
        torch.manual_seed(0)  # for the random weights of a pooler that the folder lacks
        self.bert = load_encoder(folder, "`encoder`")
        self.dtype, self.unit = dtype, unit
        for name, part in self.bert.named_parameters():
            part.requires_grad_("pooler" not in name)

    @property
    def max_tokens(self) -> int:
        """The number of positions of the model."""
        return positions(self.bert)

    def forward(self, windows: Sequence[Window]) -> Vectors:
        """Vectors of papers, float32; see `Vectors` for their shapes."""
        longest = max(len(window.ids) for window in windows)
        length = min(-(-longest // MULTIPLE) * MULTIPLE, self.max_tokens)
        count = max(len(window.spans) for window in windows)
        ids = torch.zeros(len(windows), length, dtype=torch.int64)
        pooling = torch.zeros(len(windows), count + 1, length)
        for number, window in enumerate(windows):
            ids[number, : len(window.ids)] = torch.tensor(window.ids)
            for row, (begin, end) in enumerate(window.spans):
                pooling[number, row, begin:end] = 1 / (end - begin)
            pooling[number, count, : len(window.ids)] = 1 / len(window.ids)
        device = next(self.parameters()).device
        pooling = pooling.to(device)
        mask = (pooling[:, count] > 0).long()
        with torch.autocast(device.type, torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            states: Tensor = self.bert(input_ids=ids.to(device), attention_mask=mask).last_hidden_state
        vectors = pooling @ states.float()
        if self.unit:
            vectors = F.normalize(vectors, dim=2)
        present = pooling[:, :count].amax(2) > 0
        return Vectors(vectors[:, :count], present, vectors[:, count])


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
        """See `qbe.train.weights.adamw`."""
        return adamw(self.network, self._recipe.rate, self._recipe.weight_decay)

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

    def score(self) -> float:
        """Minus the loss on dev."""
        return -self.dev_loss()

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
        objective, size = OBJECTIVES[self._recipe.objective], self._recipe.batch
        for begin in range(0, len(pairs), size):
            triplets = self._triplets(pairs[begin : begin + size], rng)
            if triplets is not None:
                yield losses(objective, triplets, self._recipe.settings)

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
