"""Late interaction of all papers of a batch with each other: each is a query, the others are candidates.

The teacher's scores are computed from stored vectors of an index, those of the rerankers from their states.
The similarities are those of `qbe.rerank.facet_cross_encoder`, which scores the candidates of one query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.rerank.projections import FacetProjection
from qbe.train.late_interaction import ProjectedPapers, StoredVectors, vector_terms
from qbe.train.reranker.network import FACETS
from qbe.train.reranker.papers import Layout
from qbe.train.reranker.task import CandidateScorer
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
        places = torch.tensor(papers)
        projected = [
            ProjectedPapers.of(self._vectors, places, layout.counts, marked, matrix)
            for marked, matrix in zip(layout.marked, self._matrices, strict=True)
        ]
        scores = [
            torch.einsum("t,tqc->qc", weights, vector_terms(each, each))
            for weights, each in zip(self._weights, projected, strict=True)
        ]
        return Scored(torch.stack(scores), [each.sentences for each in projected])


def scored(scorer: CandidateScorer, ids: Sequence[str]) -> Scored:
    """The scores of some papers with each other, as the scorer's network scores the candidates of a query."""
    states = scorer.network.encode_upper([scorer.frozen_states(paper_id) for paper_id in ids])
    papers = scorer.network.encoded([scorer.papers[paper_id] for paper_id in ids], states)
    return Scored(
        scorer.network.compared(papers, papers), [projected.sentences for projected in papers.facets]
    )
