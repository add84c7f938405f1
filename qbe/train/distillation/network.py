"""Late interaction of all papers of a batch with each other: each is a query, the others are candidates.

The teacher's scores are computed from stored vectors of an index, those of the rerankers from their states.
The similarities are those of `qbe.rerank.facet_cross_encoder`, which scores the candidates of one query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.rerank.projections import FacetProjection
from qbe.train.reranker.network import FACETS
from qbe.train.reranker.papers import TokenizedPaper
from qbe.train.reranker.task import CandidateScorer
from qbe.train.stored_vectors import StoredVectors, best_within
from qbe.types import Facet

_BLOCK = 1024
"""How many papers are compared with all at once when neighbours are looked for."""


class Layout(NamedTuple):
    """Which of a batch's sentences belong to which of its ``papers``: ``places`` (sentences,) int64; and to
    which facets: ``marked`` (3, sentences) bool.
    """

    papers: int
    places: Tensor
    marked: Tensor


def layout_of(papers: Sequence[TokenizedPaper]) -> Layout:
    """The layout of some papers' sentences.

    >>> rows = (torch.tensor([0]), torch.tensor([1]), torch.tensor([0, 1]))
    >>> paper = TokenizedPaper(torch.tensor([1, 2]), torch.ones(6, 2), rows)
    >>> layout_of([paper, paper]).places, layout_of([paper]).marked.int().tolist()
    (tensor([0, 0, 1, 1]), [[1, 0], [0, 1], [1, 1]])
    """
    counts = torch.tensor([paper.sentences for paper in papers])
    marked = torch.zeros(len(FACETS), int(counts.sum()), dtype=torch.bool)
    begin = 0
    for paper in papers:
        for facet, positions in enumerate(paper.facets):
            marked[facet, begin + positions] = True
        begin += paper.sentences
    return Layout(len(papers), torch.repeat_interleave(torch.arange(len(papers)), counts), marked)


def vector_terms(sentences: Tensor, means: Tensor, whole: Tensor, layout: Layout, facet: int) -> Tensor:
    """The similarities ``sentences``, ``facet``, ``whole`` and ``mean`` of each paper, in rows, with each:
    (4, papers, papers).

    Vectors have unit length: ``sentences`` (sentences, dimension), and for each paper that of its facet's
    sentences together in ``means`` and that of all of it in ``whole``, (papers, dimension).
    """
    marked = layout.marked[facet]
    queries, candidates = layout.places[marked], layout.places
    cosines = sentences[marked] @ sentences.T
    best = best_within(cosines, candidates, layout.papers)
    of_facet = best_within(cosines[:, marked], queries, layout.papers)
    return torch.stack(
        [
            _mean_by_paper(best, queries, layout.papers),
            _mean_by_paper(of_facet, queries, layout.papers),
            whole @ whole.T,
            means @ means.T,
        ]
    )


def token_terms(
    states: Sequence[Tensor],
    papers: Sequence[TokenizedPaper],
    weights: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The similarity ``tokens`` of each paper, in rows, with each, for each facet: (3, papers, papers).

    ``states`` are the papers' token states (tokens, dimension); ``weights`` (3, dimension) says, for each
    facet, what the states of a query's tokens count. Products of tokens run in ``dtype``.
    """
    lengths = [len(part) for part in states]
    flat = torch.cat(list(states))
    best: Tensor = _BestTokens.apply(F.normalize(flat, dim=-1), lengths, dtype)  # type: ignore[no-untyped-call]
    places = torch.repeat_interleave(torch.arange(len(papers)), torch.tensor(lengths)).to(flat.device)
    rows = []
    for facet, weight in enumerate(weights):
        inside = torch.cat([paper.facet_tokens(facet) for paper in papers]).to(flat.device)
        of_facet = places[inside]
        logits = flat[inside] @ weight
        # Any constant within a paper leaves its shares as they are; the largest keeps the powers finite.
        largest = logits.new_full((len(papers),), -torch.inf).scatter_reduce(0, of_facet, logits, "amax")
        powers = torch.exp(logits - largest.detach()[of_facet])
        sums = powers.new_zeros(len(papers)).index_add(0, of_facet, powers)
        shares = powers / sums[of_facet]
        weighted = best[inside] * shares[:, None]
        rows.append(weighted.new_zeros(len(papers), len(papers)).index_add(0, of_facet, weighted))
    return torch.stack(rows)


def _mean_by_paper(rows: Tensor, places: Tensor, papers: int) -> Tensor:
    """Means of the rows (n, columns) of each paper: (papers, columns)."""
    sums = rows.new_zeros(papers, rows.shape[1]).index_add(0, places, rows)
    counts = rows.new_zeros(papers).index_add(0, places, torch.ones_like(places, dtype=rows.dtype))
    return sums / counts[:, None]


class _BestTokens(torch.autograd.Function):
    """The best cosine of each token within each paper: (tokens, papers).

    Of the products, which are as many as pairs of tokens, only the places of the largest are kept for the
    gradient: a sparse matrix. That halves the time, and takes a hundredth of the memory.
    """

    @staticmethod
    def forward(context: Any, unit: Tensor, lengths: list[int], dtype: torch.dtype) -> Tensor:
        half = unit.detach().to(dtype)
        best, places, begin = [], [], 0
        for part in torch.split(half, lengths):
            largest = (half @ part.T).max(1)
            best.append(largest.values.float())
            places.append(largest.indices + begin)
            begin += len(part)
        chosen = torch.stack(places, 1)
        context.save_for_backward(unit, chosen)
        return torch.stack(best, 1)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        unit, chosen = context.saved_tensors
        tokens, papers = chosen.shape
        rows = torch.arange(tokens, device=unit.device).repeat_interleave(papers)
        entries = torch.stack([rows, chosen.flatten()])
        sparse = torch.sparse_coo_tensor(
            entries, gradients[0].flatten(), (tokens, tokens), check_invariants=False
        )
        return torch.sparse.mm(sparse, unit) + torch.sparse.mm(sparse.t(), unit), None, None


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


def scored(scorer: CandidateScorer, ids: Sequence[str], layout: Layout) -> Scored:
    """The scores of some papers with each other, as the scorer's network scores the candidates of a query."""
    network, papers = scorer.network, [scorer.papers[paper_id] for paper_id in ids]
    states = network.encode_upper([scorer.frozen_states(paper_id) for paper_id in ids])
    pooled = [paper.pooling.to(part.device) @ part for paper, part in zip(papers, states, strict=True)]
    parts = [
        torch.split(each, [paper.sentences, 1, 1, 1, 1]) for paper, each in zip(papers, pooled, strict=True)
    ]
    sentences, *of_facets, whole = (torch.cat(same) for same in zip(*parts, strict=True))
    tokens = token_terms(states, papers, network.token_weights, network.dtype)
    scores, projected = [], []
    for facet, matrix in enumerate(network.projections):
        vectors = (sentences, of_facets[facet], whole)
        unit, means, unit_whole = (F.normalize(part @ matrix.T, dim=-1) for part in vectors)
        terms = vector_terms(unit, means, unit_whole, layout, facet)
        every = torch.cat([terms, tokens[facet][None]])
        scores.append(torch.einsum("t,tqc->qc", network.weights[facet], every))
        projected.append(unit)
    return Scored(torch.stack(scores), projected)
