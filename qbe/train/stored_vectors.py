"""Stored vectors of papers as tensors, in memory."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor

from qbe.index.dense.stored import Vectors
from qbe.index.dense.vectors import SentenceBlock


class StoredVectors:
    """Vectors of unit length: of sentences (those of paper i begin at ``starts[i]``) and of whole papers."""

    def __init__(
        self, sentences: NDArray[np.floating], whole: NDArray[np.floating], starts: NDArray[np.int64]
    ) -> None:
        self.sentences = F.normalize(torch.tensor(np.asarray(sentences, np.float32)), dim=-1)
        self.whole = F.normalize(torch.tensor(np.asarray(whole, np.float32)), dim=-1)
        self.starts = torch.tensor(starts)

    @classmethod
    def of_block(cls, block: SentenceBlock, whole: Vectors) -> StoredVectors:
        """The vectors that an index gives of some papers' sentences, and of the ``whole`` papers."""
        starts = np.append(block.starts, len(block.rows))
        return cls(block.vectors.astype(np.float32), whole.astype(np.float32), starts)

    def rows(self, papers: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the papers' sentences, and for each the place of its paper among them."""
        begins, counts = self.starts[papers], self.starts[papers + 1] - self.starts[papers]
        places = torch.repeat_interleave(torch.arange(len(papers)), counts)
        first = torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
        return begins[places] + torch.arange(len(places)) - first, places


def best_within(cosines: Tensor, places: Tensor, papers: int) -> Tensor:
    """The best cosine of each row (m, sentences) within each paper, of which there are ``papers``.

    ``places`` (sentences,) int64 is the paper of each sentence. Returns (m, papers).

    >>> best_within(torch.tensor([[0.2, 0.9, 0.4]]), torch.tensor([0, 0, 1]), 2)
    tensor([[0.9000, 0.4000]])
    """
    lowest = cosines.new_full((len(cosines), papers), -2.0)
    return lowest.scatter_reduce(1, places.expand(len(cosines), -1), cosines, "amax")
