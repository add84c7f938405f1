"""The facet projections in PyTorch: the terms of `qbe.rerank.projections`, of lists of candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.rerank.projections import TERMS, FacetProjection
from qbe.train.stored_vectors import StoredVectors, best_within
from qbe.types import Facet

FACETS = tuple(Facet)


class GradedList(NamedTuple):
    """A query and its candidates by their places among stored papers, () and (n,) int64, and the grades
    (n, 3) float32.
    """

    query: Tensor
    candidates: Tensor
    grades: Tensor


class ProjectionNetwork(nn.Module):
    """A matrix for each facet, (3, dimension, dimension), which begins as the identity, and weights (3, 4)
    of the terms.

    ``marked`` (3, sentences) bool marks the sentences of each facet, all those of a paper that has none.
    """

    marked: Tensor

    def __init__(self, vectors: StoredVectors, marked: Tensor, start_weight: float) -> None:
        super().__init__()
        self.vectors = vectors
        self.register_buffer("marked", marked, persistent=False)
        self.matrices = nn.Parameter(torch.eye(vectors.whole.shape[1]).repeat(len(FACETS), 1, 1))
        self.weights = nn.Parameter(torch.full((len(FACETS), len(TERMS)), start_weight))

    def forward(self, graded: GradedList) -> Tensor:
        """Scores (n, 3) of a list's candidates."""
        rows, places = self.vectors.rows(graded.candidates)
        query_rows, _ = self.vectors.rows(graded.query[None])
        columns = []
        for facet, matrix in enumerate(self.matrices):
            of_facet = query_rows[self.marked[facet, query_rows]]
            query = F.normalize(self.vectors.sentences[of_facet] @ matrix.T, dim=-1)
            sentences = F.normalize(self.vectors.sentences[rows] @ matrix.T, dim=-1)
            marked = self.marked[facet, rows]
            cosines = query @ sentences.T
            sums = torch.zeros(len(graded.candidates), sentences.shape[1])
            sums = sums.index_add(0, places[marked], sentences[marked])
            pair = F.normalize(
                self.vectors.whole[[int(graded.query), *graded.candidates.tolist()]] @ matrix.T
            )
            terms = [
                best_within(cosines, places, len(sums)).mean(0),
                best_within(cosines[:, marked], places[marked], len(sums)).mean(0),
                pair[1:] @ pair[0],
                F.normalize(sums, dim=-1) @ F.normalize(query.sum(0), dim=-1),
            ]
            columns.append(torch.stack(terms, 1) @ self.weights[facet])
        return torch.stack(columns, 1)

    def projections(self) -> Mapping[Facet, FacetProjection]:
        """What was fitted, for search."""
        matrices, weights = self.matrices.detach().double().numpy(), self.weights.detach().double().numpy()
        return {
            facet: FacetProjection(matrices[place].copy(), weights[place].copy())
            for place, facet in enumerate(FACETS)
        }
