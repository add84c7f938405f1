"""Late interaction of all papers of a batch with each other: each is a query, the others are candidates.

The similarities are those of `qbe.rerank.facet_cross_encoder`, which scores the candidates of one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.train.reranker.network import FACETS
from qbe.train.reranker.tokenized import TokenizedPaper
from qbe.train.stored_vectors import best_within


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
