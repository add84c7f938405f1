"""Papers as the facet cross-encoder reads them in training: tokens, sentences, facets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qbe.encode.tokenizer import PaperTokenizer
from qbe.types import Facet, Paper


class TokenizedPaper(NamedTuple):
    """A paper's first window.

    ``ids`` (tokens,) int64. ``pooling`` (sentences + facets + 1, tokens) float32 averages token states: over
    each sentence, over each facet's sentences together, over all tokens. ``facets`` holds, for each facet,
    the positions (int64) of its sentences in the window; of all sentences where it has none.

    >>> pooling = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> positions = (torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))
    >>> paper = TokenizedPaper(torch.tensor([11, 12]), pooling, positions)
    >>> paper.sentences, paper.facet_tokens(2)
    (2, tensor([False,  True]))
    """

    ids: Tensor
    pooling: Tensor
    facets: tuple[Tensor, ...]

    @property
    def sentences(self) -> int:
        """The number of sentences in the window."""
        return len(self.pooling) - len(self.facets) - 1

    def facet_tokens(self, facet: int) -> Tensor:
        """A mask (tokens,) bool of the sentences of a facet, given by its place in `Facet`."""
        return self.pooling[self.sentences + facet] > 0


def tokenize(paper: Paper, tokenizer: PaperTokenizer, max_tokens: int) -> TokenizedPaper:
    """The first window of a labelled paper, of at most ``max_tokens``."""
    window = tokenizer.first_window(paper, max_tokens)
    count, length = len(window.spans), len(window.ids)
    positions = [
        [position for position in paper.facet_positions(facet)[0] if position < count] or range(count)
        for facet in Facet
    ]
    pooling = torch.zeros(count + len(positions) + 1, length)
    for row, (begin, end) in enumerate(window.spans):
        pooling[row, begin:end] = 1
    for number, rows in enumerate(positions):
        pooling[count + number] = pooling[list(rows)].sum(0)
    pooling[-1] = 1
    pooling /= pooling.sum(1, keepdim=True)
    ids = torch.tensor(window.ids)
    return TokenizedPaper(ids, pooling, tuple(torch.tensor(list(rows)) for rows in positions))
