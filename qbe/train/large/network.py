"""A sentence encoder whose layers are all trained, on padded batches of papers, and how papers are compared.

Papers are encoded separately. A query and a candidate are compared by the similarities that stored vectors
allow (`qbe.search.projections.compare`), after a projection for each facet.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.train.reranker.base import read_base
from qbe.train.reranker.network import EmbeddedTokens, Layer
from qbe.types import Facet

FACETS = len(Facet)
TERMS = 4
START_WEIGHT = 4.0
LENGTH_MULTIPLE = 16
"""The tokens of a batch are padded to a multiple of this."""
LOWEST = -2.0
"""Less than any cosine."""


class PaperTable(NamedTuple):
    """Papers as padded tensors, one row a paper.

    ``ids`` (papers, tokens) and ``lengths`` (papers,) are the first windows' tokens; ``begins`` and ``ends``
    (papers, sentences) the tokens of each sentence, both 0 for padding; ``marked`` (papers, sentences,
    facets) bool the sentences of a facet, all where a paper has none of it.
    """

    ids: Tensor
    lengths: Tensor
    begins: Tensor
    ends: Tensor
    marked: Tensor

    def to(self, device: torch.device | str) -> PaperTable:
        """The table on a device."""
        return PaperTable(*(part.to(device) for part in self))


class SentenceVectors(NamedTuple):
    """Papers' vectors: of ``sentences`` (papers, sentences, dimension), which are ``present`` and, by facet,
    ``marked`` (papers, sentences, facets) bool, and of ``whole`` papers (papers, dimension).
    """

    sentences: Tensor
    present: Tensor
    marked: Tensor
    whole: Tensor

    def rows(self, rows: Tensor) -> SentenceVectors:
        """Those of some papers."""
        return SentenceVectors(*(part[rows] for part in self))


class TrainedEncoder(EmbeddedTokens):
    """An encoder of the kind BERT or MPNet whose layers are all trained; its embeddings are not.

    Matrix products run in ``dtype``.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Load the encoder in ``folder``; errors are those of `qbe.train.reranker.base.read_base`."""
        base = read_base(folder)
        super().__init__(base, dtype)
        shape, weights = base.shape, base.weights
        self.upper = nn.ModuleList(Layer(shape, weights, i, joint=True) for i in range(shape.layers))
        for layer in self.upper:
            assert isinstance(layer, Layer)
            layer.gate = None  # no paper sees another

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Final states (papers, tokens, dimension) float32 of padded token ids (papers, tokens) int64."""
        papers, length = ids.shape
        places = torch.arange(length, device=ids.device)
        states = self.embed(ids, places)
        inside = places < lengths[:, None]
        mask = torch.zeros(papers, 1, 1, length, dtype=self.dtype, device=ids.device)
        mask = mask.masked_fill(~inside[:, None, None], -10000.0)
        mask = mask.expand(-1, -1, length, -1)
        if self.position_bias is not None:
            mask = mask + self.position_bias[:, :length, :length].to(self.dtype)
        for layer in self.upper:
            assert isinstance(layer, Layer)
            states = layer.finish(states, self._attended(layer, states.to(self.dtype), mask))
        return states

    def _attended(self, layer: Layer, states: Tensor, mask: Tensor) -> Tensor:
        papers, length, dimension = states.shape
        heads = self.shape.heads
        weight, bias = layer.heads_weight.to(states.dtype), layer.heads_bias.to(states.dtype)
        flat = F.linear(states, weight, bias).view(papers, length, 3, heads, dimension // heads)
        queries, keys, values = flat.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return attended.transpose(1, 2).flatten(2)


class LargeNetwork(TrainedEncoder):
    """An encoder with, for each facet, a projection of its vectors and weights of the similarities."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """See `TrainedEncoder`."""
        super().__init__(folder, dtype)
        self.weights = nn.Parameter(torch.full((FACETS, TERMS), START_WEIGHT))
        self.projections = nn.Parameter(torch.eye(self.shape.dimension).repeat(FACETS, 1, 1))

    def encode(self, table: PaperTable, rows: Tensor, chunks: int = 1) -> SentenceVectors:
        """Vectors of the papers of some rows of a table, in their order.

        They are encoded in ``chunks`` of similar lengths, which are padded each for itself.
        """
        lengths = table.lengths[rows]
        order = torch.argsort(lengths)
        longest = lengths[order].tolist()
        # Chunks of about equally many tokens: those of longer papers have fewer.
        bounds, total, begin = [0], sum(longest), 0
        for place, length in enumerate(longest):
            begin += length
            if begin >= total * len(bounds) / chunks and place + 1 < len(longest):
                bounds.append(place + 1)
        bounds.append(len(longest))
        counts = (table.ends[rows] > 0).sum(1)
        most = int(counts.max())
        parts = []
        for first, last in itertools.pairwise(bounds):
            some = rows[order[first:last]]
            length = min(-(-longest[last - 1] // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, table.ids.shape[1])
            parts.append(self._pooled(table, some, length, most))
        sentences, whole = (torch.cat(same) for same in zip(*parts, strict=True))
        back = torch.argsort(order)
        present = table.ends[rows, :most] > 0
        return SentenceVectors(sentences[back], present, table.marked[rows, :most], whole[back])

    def _pooled(self, table: PaperTable, rows: Tensor, length: int, most: int) -> tuple[Tensor, Tensor]:
        lengths = table.lengths[rows]
        states = self.states(table.ids[rows, :length].long(), lengths)
        places = torch.arange(length, device=rows.device)
        begins, ends = table.begins[rows, :most, None], table.ends[rows, :most, None]
        begins = torch.cat([begins, torch.zeros_like(begins[:, :1])], 1)
        ends = torch.cat([ends, lengths[:, None, None].to(ends.dtype)], 1)
        inside = ((places >= begins) & (places < ends)).float()
        pooled = (inside / inside.sum(2, keepdim=True).clamp(min=1)) @ states
        return pooled[:, :-1], pooled[:, -1]

    def terms(self, queries: SentenceVectors, candidates: SentenceVectors, *, plain: bool = False) -> Tensor:
        """Similarities (facets, terms, queries, candidates); ``plain`` takes the vectors as they are.

        The terms are those of `qbe.train.late_interaction.vector_terms`.
        """
        facets = []
        for facet in range(FACETS):
            matrix = None if plain else self.projections[facet]
            facets.append(_terms(_projected(queries, matrix), _projected(candidates, matrix), facet))
        return torch.stack(facets)

    def scores(self, queries: SentenceVectors, candidates: SentenceVectors) -> Tensor:
        """Scores (queries, candidates, facets)."""
        return torch.einsum("ft,ftqc->qcf", self.weights, self.terms(queries, candidates))


def _projected(papers: SentenceVectors, matrix: Tensor | None) -> SentenceVectors:
    sentences, whole = papers.sentences, papers.whole
    if matrix is not None:
        sentences, whole = sentences @ matrix.T, whole @ matrix.T
    return papers._replace(sentences=F.normalize(sentences, dim=-1), whole=F.normalize(whole, dim=-1))


def _terms(queries: SentenceVectors, candidates: SentenceVectors, facet: int) -> Tensor:
    (asked, of_facet), count = (part.marked[..., facet] for part in (queries, candidates)), len(queries.whole)
    flat = candidates.sentences.flatten(0, 1)
    cosines = (queries.sentences.flatten(0, 1) @ flat.T).view(count, -1, *candidates.present.shape)
    best = torch.stack(
        [cosines.masked_fill(~inside, LOWEST).amax(-1) for inside in (candidates.present, of_facet)]
    )
    share = (asked / asked.sum(1, keepdim=True))[None, :, :, None]
    means = [
        F.normalize((part.sentences * part.marked[..., facet, None]).sum(1), dim=-1)
        for part in (queries, candidates)
    ]
    alike = torch.stack([queries.whole @ candidates.whole.T, means[0] @ means[1].T])
    return torch.cat([(best * share).sum(2), alike])


def table_of(
    ids: Sequence[Sequence[int]], spans: Sequence[Sequence[tuple[int, int]]], marked: Sequence[Tensor]
) -> PaperTable:
    """A table of papers' token ids, spans of sentences, and facets of sentences (sentences, facets) bool."""
    papers, tokens = len(ids), max(map(len, ids))
    sentences = max(map(len, spans))
    table = PaperTable(
        torch.zeros(papers, tokens, dtype=torch.int32),
        torch.tensor([len(each) for each in ids]),
        torch.zeros(papers, sentences, dtype=torch.int64),
        torch.zeros(papers, sentences, dtype=torch.int64),
        torch.zeros(papers, sentences, FACETS, dtype=torch.bool),
    )
    for row, (each, some, facets) in enumerate(zip(ids, spans, marked, strict=True)):
        table.ids[row, : len(each)] = torch.tensor(each)
        table.begins[row, : len(some)], table.ends[row, : len(some)] = torch.tensor(some).T
        table.marked[row, : len(some)] = facets
    return table
