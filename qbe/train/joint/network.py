"""A cross-encoder in PyTorch that grades pairs of papers, read as one text, in all facets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.reranker_files import pair_input
from qbe.search.rerankers import paper_ids
from qbe.train.large.network import FACETS, TrainedEncoder
from qbe.types import Paper

LOWEST, RANGE = -0.1, 3.2
"""Grades lie between LOWEST and LOWEST + RANGE, so that those at the ends of their scale can be met."""
PRODUCT = 4.0
"""What the product of the papers' vectors is multiplied with, so that its numbers are about as large as those
of their difference."""
HEAD = ("hidden_weight", "hidden_bias", "out_weight", "out_bias")
"""The weights of the head, by name."""


class PairBatch(NamedTuple):
    """Pairs as the network reads them: token ``ids`` and ``sides`` (pairs, tokens) int64, padded with 0, and
    ``lengths`` (pairs,); see `qbe.models.reranker_files.JOINT_INPUTS`.
    """

    ids: Tensor
    sides: Tensor
    lengths: Tensor

    def to(self, device: torch.device | str) -> PairBatch:
        """The pairs on a device."""
        return PairBatch(*(part.to(device, non_blocking=True) for part in self))


class Texts:
    """Papers as token ids, by place, and pairs of them as batches."""

    def __init__(self, papers: Mapping[str, Paper], tokenizer: PaperTokenizer) -> None:
        self._special = tokenizer.special
        self._ids: dict[str, NDArray[np.uint16]] = {
            name: np.array(paper_ids(tokenizer, paper), np.uint16) for name, paper in papers.items()
        }

    def length(self, query: str, candidate: str) -> int:
        """The number of tokens of a pair."""
        return len(self._ids[query]) + len(self._ids[candidate]) + 3

    def batch(self, pairs: Sequence[tuple[str, str]]) -> PairBatch:
        """Pairs of ids of papers, one row each."""
        rows = [
            pair_input(
                self._ids[first].tolist(), self._ids[second].tolist(), self._special.cls, self._special.sep
            )
            for first, second in pairs
        ]
        lengths = [row.ids.shape[1] for row in rows]
        ids, sides = (torch.zeros(len(rows), max(lengths), dtype=torch.int64) for _ in range(2))
        for place, row in enumerate(rows):
            ids[place, : lengths[place]] = torch.from_numpy(row.ids[0])
            sides[place, : lengths[place]] = torch.from_numpy(row.sides[0])
        return PairBatch(ids, sides, torch.tensor(lengths))


def chunks(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Places of pairs, those of similar length together, at most about ``tokens`` in a chunk with padding.

    >>> chunks([3, 9, 4, 10], 20)
    [[0, 2], [1, 3]]
    """
    parts: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if parts and lengths[place] * (len(parts[-1]) + 1) <= tokens:
            parts[-1].append(place)
        else:
            parts.append([place])
    return parts


class JointNetwork(TrainedEncoder):
    """An encoder whose layers are all trained, over pairs, and a head of one hidden layer.

    The head sees the state of [CLS], the product of the two papers' vectors (the means of their tokens'
    states, of unit length), and the size of their difference, so that it begins with what encoders of single
    papers know.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """See `TrainedEncoder`; the head's weights are drawn, the same each time."""
        super().__init__(folder, dtype)
        size = self.shape.dimension
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            hidden, out = nn.Linear(3 * size, size), nn.Linear(size, FACETS)
        self.hidden_weight, self.hidden_bias = hidden.weight, hidden.bias
        self.out_weight, self.out_bias = out.weight, out.bias

    def forward(self, batch: PairBatch) -> Tensor:
        """Scores (pairs, facets); `grades_of` makes grades of them."""
        states = self.states(batch.ids, batch.lengths)
        return head_scores(states, batch.sides, *(getattr(self, name) for name in HEAD))


def head_scores(
    states: Tensor, sides: Tensor, hidden: Tensor, hidden_bias: Tensor, out: Tensor, out_bias: Tensor
) -> Tensor:
    """The head of `JointNetwork` over states (pairs, tokens, dimension) and ``sides`` (pairs, tokens)."""
    units = []
    for side in (1, 2):
        mean = ((sides == side).to(states.dtype)[:, None] @ states)[:, 0]
        units.append(mean / mean.norm(dim=-1, keepdim=True).clamp(min=1e-12))
    first, second = units
    root = math.sqrt(states.shape[-1])
    parts = [states[:, 0], PRODUCT * root * first * second, root * (first - second).abs()]
    return F.linear(F.gelu(F.linear(torch.cat(parts, 1), hidden, hidden_bias)), out, out_bias)


def grades_of(scores: Tensor) -> Tensor:
    """Grades out of scores.

    >>> grades_of(torch.tensor([0.0])).tolist()
    [1.5]
    """
    return LOWEST + RANGE * torch.sigmoid(scores)
