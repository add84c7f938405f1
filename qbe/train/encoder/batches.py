"""Co-cited pairs as batches of triplets: a query, a paper co-cited with it, and one that is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch

from qbe.encode.tokenizer import PaperTokenizer, Window, passes
from qbe.models.encoder_format import TITLE_ABSTRACT
from qbe.train.encoder.cocitations import Alignment
from qbe.train.encoder.loss import Triplets
from qbe.train.encoder.network import EncoderNetwork
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
