"""Stored vectors of papers as tensors, in memory."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor


class StoredVectors:
    """Vectors of unit length: of sentences (those of paper i begin at ``starts[i]``) and of whole papers."""

    def __init__(
        self, sentences: NDArray[np.floating], whole: NDArray[np.floating], starts: NDArray[np.int64]
    ) -> None:
        self.sentences = F.normalize(torch.tensor(np.asarray(sentences, np.float32)), dim=-1)
        self.whole = F.normalize(torch.tensor(np.asarray(whole, np.float32)), dim=-1)
        self.starts = torch.tensor(starts)

    def rows(self, papers: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the papers' sentences, and for each the place of its paper among them."""
        begins, counts = self.starts[papers], self.starts[papers + 1] - self.starts[papers]
        places = torch.repeat_interleave(torch.arange(len(papers)), counts)
        first = torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
        return begins[places] + torch.arange(len(places)) - first, places
