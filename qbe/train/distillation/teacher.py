"""The teacher: stored vectors of an index, and the facet projections that score them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.rerank.projections import FacetProjection
from qbe.train.distillation.interaction import Layout, vector_terms
from qbe.train.reranker.network import FACETS
from qbe.train.stored_vectors import StoredVectors
from qbe.types import Facet

_BLOCK = 1024
"""How many papers are compared with all at once when neighbours are looked for."""


class Scored(NamedTuple):
    """``scores`` (3, papers, papers) of each paper, in rows, with each, by facet, and for each facet the
    projected ``sentences`` (sentences, dimension), of unit length.
    """

    scores: Tensor
    sentences: Sequence[Tensor]


class Teacher:
    """Scores papers with each other by projections of their vectors (`qbe.rerank.projections`)."""

    def __init__(self, vectors: StoredVectors, projections: Mapping[Facet, FacetProjection]) -> None:
        """``projections`` by facet: matrices (dimension, dimension) and weights (4,)."""
        self._vectors = vectors
        ordered = [projections[facet] for facet in FACETS]
        self._matrices = torch.tensor(np.stack([each.matrix for each in ordered]), dtype=torch.float32)
        self._weights = torch.tensor(np.stack([each.weights for each in ordered]), dtype=torch.float32)

    def neighbours(self, usable: Tensor, count: int) -> Tensor:
        """For each facet and each paper the ``count`` most similar ones, by the projections of whole papers:
        (3, papers, count) int64.

        Only papers that are ``usable`` (papers,) bool are neighbours, and none is its own.
        """
        nearest = []
        for matrix in self._matrices:
            whole = F.normalize(self._vectors.whole @ matrix.T, dim=-1)
            blocks = []
            for begin in range(0, len(whole), _BLOCK):
                cosines = whole[begin : begin + _BLOCK] @ whole.T
                cosines[:, ~usable] = -torch.inf
                rows = torch.arange(len(cosines))
                cosines[rows, rows + begin] = -torch.inf
                blocks.append(cosines.topk(count, dim=1).indices)
            nearest.append(torch.cat(blocks))
        return torch.stack(nearest)

    def scored(self, papers: Sequence[int], layout: Layout) -> Scored:
        """The scores of some papers, given by their places; of each the first sentences, as many as the
        ``layout`` has, are compared.
        """
        counts = torch.bincount(layout.places, minlength=layout.papers)
        begins = self._vectors.starts[torch.tensor(papers)]
        offsets = torch.arange(len(layout.places)) - torch.repeat_interleave(
            counts.cumsum(0) - counts, counts
        )
        rows = torch.repeat_interleave(begins, counts) + offsets
        scores, projected = [], []
        for facet, (matrix, weights) in enumerate(zip(self._matrices, self._weights, strict=True)):
            sentences = F.normalize(self._vectors.sentences[rows] @ matrix.T, dim=-1)
            whole = F.normalize(self._vectors.whole[list(papers)] @ matrix.T, dim=-1)
            marked = layout.marked[facet]
            sums = torch.zeros(layout.papers, sentences.shape[1])
            sums = sums.index_add(0, layout.places[marked], sentences[marked])
            terms = vector_terms(sentences, F.normalize(sums, dim=-1), whole, layout, facet)
            scores.append(torch.einsum("t,tqc->qc", weights, terms))
            projected.append(sentences)
        return Scored(torch.stack(scores), projected)
