"""Late interaction of papers in PyTorch, as in `qbe.search.projections`, and stored vectors as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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

    def rows(self, papers: Tensor, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The rows of the papers' sentences, and for each the place of its paper among them; of each paper
        the first ``counts`` (papers,) sentences (None: all).
        """
        if counts is None:
            counts = self.starts[papers + 1] - self.starts[papers]
        places = torch.repeat_interleave(torch.arange(len(papers)), counts)
        first = torch.cumsum(counts, 0) - counts
        return (self.starts[papers] - first)[places] + torch.arange(len(places)), places


class ProjectedPapers(NamedTuple):
    """Papers as a facet's projection gives them, all vectors of unit length.

    ``sentences`` (sentences, dimension) belong to the papers ``places`` (sentences,) int64; those of the
    facet are ``marked`` (sentences,) bool, and together ``means`` (papers, dimension). ``whole`` (papers,
    dimension) are the papers as a whole.
    """

    sentences: Tensor
    places: Tensor
    marked: Tensor
    means: Tensor
    whole: Tensor

    @classmethod
    def of(
        cls, vectors: StoredVectors, papers: Tensor, counts: Tensor | None, marked: Tensor, matrix: Tensor
    ) -> ProjectedPapers:
        """Stored papers, of each the first ``counts`` sentences, projected by a matrix; ``marked`` are those
        of these sentences, or (with no ``counts``) of all stored ones, that belong to the facet.
        """
        rows, places = vectors.rows(papers, counts)
        if counts is None:
            marked = marked[rows]
        sentences = F.normalize(vectors.sentences[rows] @ matrix.T, dim=-1)
        sums = sentences.new_zeros(len(papers), sentences.shape[1])
        sums = sums.index_add(0, places[marked], sentences[marked])
        whole = F.normalize(vectors.whole[papers] @ matrix.T, dim=-1)
        return cls(sentences, places, marked, F.normalize(sums, dim=-1), whole)


def vector_terms(queries: ProjectedPapers, candidates: ProjectedPapers) -> Tensor:
    """The similarities ``sentences``, ``facet``, ``whole`` and ``mean`` (`qbe.search.projections.compare`) of
    each query with each candidate: (4, queries, candidates).
    """
    owners, count = queries.places[queries.marked], len(candidates.whole)
    cosines = queries.sentences[queries.marked] @ candidates.sentences.T
    best = best_within(cosines, candidates.places, count)
    of_facet = best_within(cosines[:, candidates.marked], candidates.places[candidates.marked], count)
    return torch.stack(
        [
            mean_by_paper(best, owners, len(queries.whole)),
            mean_by_paper(of_facet, owners, len(queries.whole)),
            queries.whole @ candidates.whole.T,
            queries.means @ candidates.means.T,
        ]
    )


def best_within(cosines: Tensor, places: Tensor, papers: int) -> Tensor:
    """The best cosine of each row (m, sentences) within each paper, of which there are ``papers``.

    ``places`` (sentences,) int64 is the paper of each sentence. Returns (m, papers).

    >>> best_within(torch.tensor([[0.2, 0.9, 0.4]]), torch.tensor([0, 0, 1]), 2)
    tensor([[0.9000, 0.4000]])
    """
    lowest = cosines.new_full((len(cosines), papers), -2.0)
    return lowest.scatter_reduce(1, places.expand(len(cosines), -1), cosines, "amax")


def mean_by_paper(rows: Tensor, places: Tensor, papers: int) -> Tensor:
    """Means of the rows (n, columns) of each paper: (papers, columns).

    >>> mean_by_paper(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 2)
    tensor([[2.],
            [5.]])
    """
    sums = rows.new_zeros(papers, rows.shape[1]).index_add(0, places, rows)
    return sums / torch.bincount(places, minlength=papers)[:, None]


def token_terms(
    marked: Sequence[Tensor],
    query_states: Sequence[Tensor],
    candidate_states: Sequence[Tensor],
    weights: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The similarity ``tokens`` (`qbe.train.reranker.network`) of each query with each candidate, for each
    facet: (3, queries, candidates).

    States are those of the papers' tokens (tokens, dimension); ``marked`` (3, tokens) bool are the tokens of
    all queries that belong to a facet; ``weights`` (3, dimension) says, for each facet, what the states of a
    query's tokens count. Products of tokens run in ``dtype``.
    """
    flat = torch.cat(list(query_states))
    unit, others = F.normalize(flat, dim=-1), F.normalize(torch.cat(list(candidate_states)), dim=-1)
    lengths = [len(part) for part in candidate_states]
    best: Tensor = _BestTokens.apply(unit, others, lengths, dtype)  # type: ignore[no-untyped-call]
    counts = torch.tensor([len(part) for part in query_states])
    places = torch.repeat_interleave(torch.arange(len(counts)), counts).to(flat.device)
    rows = []
    for inside, weight in zip(marked, weights, strict=True):
        of_facet = places[inside]
        logits = flat[inside] @ weight
        # Any constant within a paper leaves its shares as they are; the largest keeps the powers finite.
        largest = logits.new_full((len(counts),), -torch.inf).scatter_reduce(0, of_facet, logits, "amax")
        powers = torch.exp(logits - largest.detach()[of_facet])
        sums = powers.new_zeros(len(counts)).index_add(0, of_facet, powers)
        weighted = best[inside] * (powers / sums[of_facet])[:, None]
        rows.append(weighted.new_zeros(len(counts), len(lengths)).index_add(0, of_facet, weighted))
    return torch.stack(rows)


class _BestTokens(torch.autograd.Function):
    """The best cosine of each token within each of some other papers: (tokens, papers).

    Of the products, which are as many as pairs of tokens, only the places of the largest are kept for the
    gradient: a sparse matrix. That halves the time, and takes a hundredth of the memory.
    """

    @staticmethod
    def forward(context: Any, unit: Tensor, others: Tensor, lengths: list[int], dtype: torch.dtype) -> Tensor:
        half, best, places, begin = unit.detach().to(dtype), [], [], 0
        for part in torch.split(others.detach().to(dtype), lengths):
            largest = (half @ part.T).max(1)
            best.append(largest.values.float())
            places.append(largest.indices + begin)
            begin += len(part)
        context.save_for_backward(unit, others, torch.stack(places, 1))
        return torch.stack(best, 1)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        unit, others, chosen = context.saved_tensors
        rows = torch.arange(len(chosen), device=unit.device).repeat_interleave(chosen.shape[1])
        entries, shape = torch.stack([rows, chosen.flatten()]), (len(unit), len(others))
        sparse = torch.sparse_coo_tensor(entries, gradients[0].flatten(), shape, check_invariants=False)
        return torch.sparse.mm(sparse, others), torch.sparse.mm(sparse.t(), unit), None, None
