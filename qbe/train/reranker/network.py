"""The facet cross-encoder in PyTorch: one-way joint attention, scored by late interaction.

The query is encoded first. In the upper (joint) layers the tokens of each candidate attend to the query's
tokens as well as to their own, but not the other way round, so that the query is encoded once for all
candidates. A bias (``gate``) nearly closes the attention to the query at first, so that an untrained network
scores by the late interaction of the encoder's own states.

The score is a weighted sum of five similarities, in the order of FEATURES. ``sentences``: the mean over the
query's sentences of the facet of each one's best cosine with a sentence of the candidate (mean-max; Khattab
and Zaharia, 2020, eq. 3, over sentences). ``facet``: the same with the candidate's sentences of the facet
alone. ``whole``: the cosine of the papers. ``mean``: the cosine of the facet's sentences, averaged.
``tokens``: each token of the query's facet's best cosine with a token of the candidate, averaged by the
tokens' shares, which are the softmax of what ``token_weights`` gives their states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.train.late_interaction import ProjectedPapers, token_terms, vector_terms
from qbe.train.reranker.base import Base, Shape, position_bias, read_base
from qbe.train.reranker.papers import TokenizedPaper, layout_of
from qbe.types import Facet

FACETS = tuple(Facet)
FEATURES = ("sentences", "facet", "whole", "mean", "tokens")
START_WEIGHT, START_GATE = 4.0, -4.0
PAPER_MULTIPLE, LIST_MULTIPLE = 16, 256
"""In training the tokens of a paper, and of a list of papers, are padded to a multiple of these."""
PADDING_LOGIT = -10000.0


class Heads(NamedTuple):
    """A paper's queries, keys and values in one layer, each (heads, tokens, dimension / heads).

    ``padding`` (tokens,) is added to the attention logits of the keys: 0, and nearly minus infinity for
    padding; None where there is no padding.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    padding: Tensor | None = None


class EncodedPapers(NamedTuple):
    """Papers with their final token ``states`` (tokens, dimension), and as each facet's projection gives
    them.
    """

    papers: Sequence[TokenizedPaper]
    states: Sequence[Tensor]
    facets: Sequence[ProjectedPapers]


class Layer(nn.Module):
    """One layer of BERT (Devlin et al., 2019) or MPNet, post-normalized, without dropout; in joint layers
    attention is BERT's.

    ``gate`` (heads, 1, 1), in joint layers, is added to the attention logits of a candidate's tokens for the
    query's; None in layers that encode every paper separately.
    """

    def __init__(self, shape: Shape, weights: Mapping[str, Tensor], number: int, *, joint: bool) -> None:
        super().__init__()
        self.shape = shape

        def take(name: str) -> nn.Parameter:
            return nn.Parameter(weights[f"encoder.layer.{number}.{name}"].float(), requires_grad=joint)

        parts = ("query", "key", "value")
        self.heads_weight, self.heads_bias = (
            nn.Parameter(torch.cat([take(f"attention.self.{part}.{kind}").data for part in parts]), joint)
            for kind in ("weight", "bias")
        )
        self.out_weight, self.out_bias = (take(f"attention.output.dense.{k}") for k in ("weight", "bias"))
        self.norm_weight, self.norm_bias = (
            take(f"attention.output.LayerNorm.{k}") for k in ("weight", "bias")
        )
        self.up_weight, self.up_bias = (take(f"intermediate.dense.{k}") for k in ("weight", "bias"))
        self.down_weight, self.down_bias = (take(f"output.dense.{k}") for k in ("weight", "bias"))
        self.last_weight, self.last_bias = (take(f"output.LayerNorm.{k}") for k in ("weight", "bias"))
        self.gate = nn.Parameter(torch.full((shape.heads, 1, 1), START_GATE)) if joint else None

    def heads(self, states: Tensor, lengths: Sequence[int]) -> list[Heads]:
        """Queries, keys and values of papers whose token states are concatenated in (tokens, dimension)."""
        size = self.shape.dimension // self.shape.heads
        dtype = states.dtype
        flat = F.linear(states, self.heads_weight.to(dtype), self.heads_bias.to(dtype))
        papers = []
        for part in torch.split(flat, list(lengths)):
            split = part.view(-1, 3, self.shape.heads, size).permute(1, 2, 0, 3)
            queries, keys, values = split.contiguous().unbind(0)
            papers.append(Heads(queries / math.sqrt(size), keys, values))
        return papers

    def attend(self, paper: Heads, query: Heads | None = None) -> Tensor:
        """The attention output (tokens, dimension) of a paper's tokens, over paper and query, if any."""
        keys, values, padding = paper.keys, paper.values, paper.padding
        if query is not None:
            keys, values = torch.cat([query.keys, keys], 1), torch.cat([query.values, values], 1)
            if padding is not None and query.padding is not None:
                padding = torch.cat([query.padding, padding])
        scores = paper.queries @ keys.transpose(1, 2)
        if query is not None and self.gate is not None:
            gate = self.gate.to(scores.dtype) * torch.ones_like(query.keys[:, :, 0]).unsqueeze(1)
            scores = scores + torch.cat([gate, torch.zeros_like(paper.keys[:, :, 0]).unsqueeze(1)], 2)
        if padding is not None:
            scores = scores + padding.to(scores.dtype)
        attended = torch.softmax(scores, -1) @ values
        return attended.transpose(0, 1).flatten(1)

    def finish(self, states: Tensor, attended: Tensor) -> Tensor:
        """The layer's output (tokens, dimension): projection and feed-forward, each with its residual."""
        dtype, size = attended.dtype, (self.shape.dimension,)
        projected = F.linear(attended, self.out_weight.to(dtype), self.out_bias.to(dtype))
        middle = F.layer_norm(
            states + projected.to(states.dtype), size, self.norm_weight, self.norm_bias, self.shape.epsilon
        )
        wide = F.gelu(F.linear(middle.to(dtype), self.up_weight.to(dtype), self.up_bias.to(dtype)))
        narrow = F.linear(wide, self.down_weight.to(dtype), self.down_bias.to(dtype))
        return F.layer_norm(
            middle + narrow.to(states.dtype), size, self.last_weight, self.last_bias, self.shape.epsilon
        )


class EmbeddedTokens(nn.Module):
    """The embeddings of an encoder of the kind BERT or MPNet, which are not trained, and the bias (heads,
    positions, positions) of MPNet's attention, None for BERT. Matrix products of what is built on them run in
    ``dtype``.
    """

    def __init__(self, base: Base, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape, self.first_position, self.dtype = base.shape, base.first_position, dtype

        def fixed(name: str) -> nn.Parameter:
            return nn.Parameter(base.weights[f"embeddings.{name}"].float(), requires_grad=False)

        self.words, self.places = (fixed(f"{kind}_embeddings.weight") for kind in ("word", "position"))
        # A paper is one segment: its type is that of the first (BERT; MPNet has none).
        none = torch.zeros(1, self.shape.dimension)
        types = base.weights.get("embeddings.token_type_embeddings.weight", none)
        self.types = nn.Parameter(types.float(), requires_grad=False)
        self.norm_weight, self.norm_bias = fixed("LayerNorm.weight"), fixed("LayerNorm.bias")
        self.position_bias: Tensor | None
        longest = len(self.places) - self.first_position
        bias = None if base.distances is None else position_bias(base.distances, longest)
        self.register_buffer("position_bias", bias, persistent=False)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embeddings (..., tokens, dimension) of token ids (..., tokens) int64 at ``positions`` (tokens,)."""
        summed = self.words[ids] + self.places[positions + self.first_position] + self.types[0]
        size = (self.shape.dimension,)
        return F.layer_norm(summed, size, self.norm_weight, self.norm_bias, self.shape.epsilon)


class Network(EmbeddedTokens):
    """The cross-encoders of all facets: a shared encoder, and for each facet a projection and weights.

    The embeddings and the lower layers are frozen; the last ``joint`` layers are trained. Matrix products
    run in ``dtype`` (bfloat16 halves the time where the processor supports it).
    """

    def __init__(self, folder: Path, joint: int, dtype: torch.dtype) -> None:
        """Load the encoder of the kind BERT in ``folder``; errors are those of
        `qbe.train.reranker.base.read_base`.
        """
        base = read_base(folder)
        super().__init__(base, dtype)
        shape, weights = base.shape, base.weights
        first = shape.layers - joint
        self.lower = nn.ModuleList(Layer(shape, weights, i, joint=False) for i in range(first))
        self.upper = nn.ModuleList(Layer(shape, weights, i, joint=True) for i in range(first, shape.layers))
        self.weights = nn.Parameter(torch.full((len(FACETS), len(FEATURES)), START_WEIGHT))
        self.projections = nn.Parameter(torch.eye(shape.dimension).repeat(len(FACETS), 1, 1))
        self.token_weights = nn.Parameter(torch.zeros(len(FACETS), shape.dimension))

    @torch.no_grad()
    def encode_lower(self, papers: Sequence[TokenizedPaper]) -> list[Tensor]:
        """States (tokens, dimension) bfloat16 of papers after the frozen layers."""
        lengths = [len(paper.ids) for paper in papers]
        device = self.weights.device
        positions = torch.cat([torch.arange(length, device=device) for length in lengths])
        states = self.embed(torch.cat([paper.ids.to(device) for paper in papers]), positions)
        for layer in self.lower:
            assert isinstance(layer, Layer)
            heads = layer.heads(states.to(self.dtype), lengths)
            states = layer.finish(states, torch.cat([layer.attend(paper) for paper in heads]))
        return [part.to(torch.bfloat16) for part in torch.split(states, lengths)]

    def encode_upper(self, frozen_states: Sequence[Tensor], *, separate: bool = False) -> tuple[Tensor, ...]:
        """Final states (tokens, dimension) of a query, which comes first, and of its candidates; where
        ``separate``, of papers that do not attend to each other.

        ``frozen_states`` are those of `encode_lower`.
        """
        device, size = self.weights.device, self.shape.dimension
        # Lengths and their sum are rounded up: oneDNN compiles its products for each new shape, which took as
        # long as the products themselves.
        pieces: list[Tensor] = []
        lengths, paddings = [], []
        for part in frozen_states:
            length = len(part)
            spare = -length % PAPER_MULTIPLE
            pieces += [part.to(device).float(), torch.zeros(spare, size, device=device)]
            lengths.append(length + spare)
            paddings.append(torch.zeros(length + spare, device=device))
            paddings[-1][length:] = PADDING_LOGIT
        rest = -sum(lengths) % LIST_MULTIPLE
        states = torch.cat([*pieces, torch.zeros(rest, size, device=device)])
        for layer in self.upper:
            assert isinstance(layer, Layer)
            *papers, _ = layer.heads(states.to(self.dtype), [*lengths, rest])
            query, *candidates = (
                paper._replace(padding=padding) for paper, padding in zip(papers, paddings, strict=True)
            )
            seen = None if separate else query
            attended = [layer.attend(query), *(layer.attend(paper, seen) for paper in candidates)]
            blank = torch.zeros(rest, size, dtype=self.dtype, device=device)
            states = layer.finish(states, torch.cat([*attended, blank]))
        return torch.split(states, [*map(len, pieces), rest])[:-1:2]

    def forward(self, papers: Sequence[TokenizedPaper], frozen_states: Sequence[Tensor]) -> Tensor:
        """Scores (candidates, facets) of the papers after the first, which is the query."""
        states = self.encode_upper(frozen_states)
        query, candidates = self.encoded(papers[:1], states[:1]), self.encoded(papers[1:], states[1:])
        return self.compared(query, candidates)[:, 0].T

    def encoded(self, papers: Sequence[TokenizedPaper], states: Sequence[Tensor]) -> EncodedPapers:
        """Papers as they are compared, from their final states."""
        pooled = [paper.pooling.to(part.device) @ part for paper, part in zip(papers, states, strict=True)]
        parts = [
            torch.split(each, [paper.sentences, 1, 1, 1, 1])
            for paper, each in zip(papers, pooled, strict=True)
        ]
        sentences, *means, whole = (torch.cat(same) for same in zip(*parts, strict=True))
        layout = layout_of(papers, sentences.device)
        facets = []
        for matrix, mean, marked in zip(self.projections, means, layout.marked, strict=True):
            unit, unit_mean, unit_whole = (
                F.normalize(part @ matrix.T, dim=-1) for part in (sentences, mean, whole)
            )
            facets.append(ProjectedPapers(unit, layout.places, marked, unit_mean, unit_whole))
        return EncodedPapers(papers, states, facets)

    def compared(self, queries: EncodedPapers, candidates: EncodedPapers) -> Tensor:
        """Scores (facets, queries, candidates) of each query with each candidate."""
        marked = [
            torch.cat([paper.facet_tokens(facet) for paper in queries.papers]).to(self.weights.device)
            for facet in range(len(FACETS))
        ]
        tokens = token_terms(marked, queries.states, candidates.states, self.token_weights, self.dtype)
        terms = [
            torch.cat([vector_terms(query, candidate), term[None]])
            for query, candidate, term in zip(queries.facets, candidates.facets, tokens, strict=True)
        ]
        return torch.einsum("ft,ftqc->fqc", self.weights, torch.stack(terms))
