"""Co-cited pairs as batches: each query with a paper cited beside it and one that was not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch

from qbe.encode.tokenizer import PaperTokenizer
from qbe.encode.windows import Window, passes
from qbe.models.encoder_format import TITLE_ABSTRACT
from qbe.train.encoder.cocitations import Alignment
from qbe.train.encoder.loss import Triplets
from qbe.train.encoder.network import EncoderNetwork
from qbe.types import Paper


class Pair(NamedTuple):
    """Two papers cited together, the ids of the set, and the two sentences told to belong together."""

    cited: frozenset[str]
    query: Paper
    positive: Paper
    told: Alignment = (0, 0)


class Reader(NamedTuple):
    """How papers are read: by which tokenizer, in passes of how many tokens, in which layout."""

    tokenizer: PaperTokenizer
    max_tokens: int
    layout: str = TITLE_ABSTRACT

    def window(self, paper: Paper) -> Window:
        """A paper's first pass; what is beyond it is not learned from."""
        sentences = [self.tokenizer.ids(sentence.text) for sentence in paper.sentences]
        title = self.tokenizer.ids(paper.title)
        return next(passes(title, sentences, self.tokenizer.special, self.max_tokens, self.layout))


def draw_negatives(pairs: Sequence[Pair], ranks: random.Random) -> list[tuple[int, int]]:
    """For each pair (by its number) another, of no common paper, whose positive is its negative.

    A pair to which all others of the batch are related is left out. (The paper's code takes a random
    permutation of the positives, which may give a paper back to its own query.)
    """
    found = []
    for number, pair in enumerate(pairs):
        others = [place for place, other in enumerate(pairs) if pair.cited.isdisjoint(other.cited)]
        if others:
            found.append((number, ranks.choice(others)))
    return found


def read_triplets(
    network: EncoderNetwork, reader: Reader, pairs: Sequence[Pair], ranks: random.Random
) -> Triplets | None:
    """A batch of pairs, read by the network in one pass; None where no pair finds a negative."""
    drawn = draw_negatives(pairs, ranks)
    if not drawn:
        return None
    papers = [pair.query for pair in pairs] + [pair.positive for pair in pairs]
    vectors = network([reader.window(paper) for paper in papers])
    device = vectors.whole.device
    numbers, others = (torch.tensor(column, device=device) for column in zip(*drawn, strict=True))
    told = torch.tensor([pair.told for pair in pairs], device=device)
    return Triplets(
        vectors.at(numbers),
        vectors.at(len(pairs) + numbers),
        vectors.at(len(pairs) + others),
        told[numbers],
        told[others, 1],
    )
