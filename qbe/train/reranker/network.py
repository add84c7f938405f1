"""The facet cross-encoder in PyTorch: one-way joint attention, scored by late interaction.

The query is read first. Each candidate is then read with the query before its eyes: in the joint layers
its tokens attend to the query's tokens as well as to their own, but not the other way round, so that one
reading of the query serves all candidates. The score is a weighted sum of similarities between sentences,
tokens and whole papers (`qbe.rerank.late_interaction` has the formulas). Untrained it is the encoder's own
late interaction, since the joint attention begins nearly shut: training starts from a matcher, not from
nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.rerank.late_interaction import FEATURES
from qbe.train.reranker.reading import Reading
from qbe.train.weights import learned
from qbe.types import Facet

FACETS = tuple(Facet)
START_WEIGHT, START_GATE = 4.0, -4.0
PAPER_MULTIPLE, LIST_MULTIPLE = 16, 256
"""What the tokens of a paper, and of a list of papers, are padded to a multiple of in training."""
NOT_SEEN = -10000.0


class Shape(NamedTuple):
    """Sizes of a BERT encoder."""

    dimension: int
    heads: int
    layers: int
    epsilon: float


class Heads(NamedTuple):
    """A paper's queries, keys and values in one layer, each (heads, tokens, dimension / heads).

    ``padding`` (tokens,) is added to the attention that each key gets: 0, and nearly minus infinity for
    tokens that only pad; None where there are none such.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    padding: Tensor | None = None


class Layer(nn.Module):
    """One layer of BERT (Devlin et al., 2019), post-normalized, without dropout.

    ``gate`` (heads, 1, 1), in joint layers, is added to the attention that a candidate's tokens pay to the
    query's; None in layers that read every paper by itself.
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
        """Queries, keys and values of papers whose token states (tokens, dimension) lie end to end."""
        size = self.shape.dimension // self.shape.heads
        kind = states.dtype
        flat = F.linear(states, self.heads_weight.to(kind), self.heads_bias.to(kind))
        found = []
        # A single paper is not split, so that an exported graph holds no length.
        for part in torch.split(flat, list(lengths)) if len(lengths) > 1 else [flat]:
            split = part.view(-1, 3, self.shape.heads, size).permute(1, 2, 0, 3)
            queries, keys, values = split.contiguous().unbind(0)
            found.append(Heads(queries / math.sqrt(size), keys, values))
        return found

    def attend(self, own: Heads, query: Heads | None = None) -> Tensor:
        """What each token of a paper (tokens, dimension) gathers from it and from the query, if any."""
        keys, values, padding = own.keys, own.values, own.padding
        if query is not None:
            keys, values = torch.cat([query.keys, keys], 1), torch.cat([query.values, values], 1)
            if padding is not None and query.padding is not None:
                padding = torch.cat([query.padding, padding])
        scores = own.queries @ keys.transpose(1, 2)
        if query is not None and self.gate is not None:
            gate = self.gate.to(scores.dtype) * torch.ones_like(query.keys[:, :, 0]).unsqueeze(1)
            none = torch.zeros_like(own.keys[:, :, 0]).unsqueeze(1)
            scores = scores + torch.cat([gate, none], 2)
        if padding is not None:
            scores = scores + padding.to(scores.dtype)
        gathered = torch.softmax(scores, -1) @ values
        return gathered.transpose(0, 1).flatten(1)

    def finish(self, states: Tensor, gathered: Tensor) -> Tensor:
        """The layer's output (tokens, dimension): projection and feed-forward, each with its residual."""
        kind, size = gathered.dtype, (self.shape.dimension,)
        projected = F.linear(gathered, self.out_weight.to(kind), self.out_bias.to(kind))
        middle = F.layer_norm(
            states + projected.to(states.dtype), size, self.norm_weight, self.norm_bias, self.shape.epsilon
        )
        wide = F.gelu(F.linear(middle.to(kind), self.up_weight.to(kind), self.up_bias.to(kind)))
        narrow = F.linear(wide, self.down_weight.to(kind), self.down_bias.to(kind))
        return F.layer_norm(
            middle + narrow.to(states.dtype), size, self.last_weight, self.last_bias, self.shape.epsilon
        )


class Network(nn.Module):
    """The cross-encoder of all facets: a shared trunk, and for each facet a projection and weights.

    The embeddings and the lower layers stay as they are; the last ``joint`` layers learn. Matrix products
    run in ``kind`` (bfloat16 halves the time where the processor has it).
    """

    def __init__(self, folder: Path, joint: int = 3, kind: torch.dtype = torch.bfloat16) -> None:
        """Start from the BERT encoder in ``folder`` (config.json, model.safetensors)."""
        from safetensors.torch import load_file

        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        shape = Shape(*(config[name] for name in _SIZES))
        weights = load_file(folder / "model.safetensors")
        self.shape, self.joint, self.kind = shape, joint, kind

        def fixed(name: str) -> nn.Parameter:
            return nn.Parameter(weights[f"embeddings.{name}"].float(), requires_grad=False)

        self.words, self.places, self.types = (
            fixed(f"{kind}_embeddings.weight") for kind in ("word", "position", "token_type")
        )
        self.norm_weight, self.norm_bias = fixed("LayerNorm.weight"), fixed("LayerNorm.bias")
        first = shape.layers - joint
        self.lower = nn.ModuleList(Layer(shape, weights, i, joint=False) for i in range(first))
        self.upper = nn.ModuleList(Layer(shape, weights, i, joint=True) for i in range(first, shape.layers))
        self.weights = nn.Parameter(torch.full((len(FACETS), len(FEATURES)), START_WEIGHT))
        self.projections = nn.Parameter(torch.eye(shape.dimension).repeat(len(FACETS), 1, 1))
        self.token_weights = nn.Parameter(torch.zeros(len(FACETS), shape.dimension))

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embeddings (tokens, dimension) of token ids (tokens,) int64."""
        together = self.words[ids] + self.places[positions] + self.types[0]
        size = (self.shape.dimension,)
        return F.layer_norm(together, size, self.norm_weight, self.norm_bias, self.shape.epsilon)

    @property
    def learned(self) -> dict[str, nn.Parameter]:
        """The parameters that learn, by name."""
        return learned(self)

    @torch.no_grad()
    def read_below(self, papers: Sequence[Reading]) -> list[Tensor]:
        """States (tokens, dimension) bfloat16 of papers behind the layers that do not learn."""
        lengths = [len(paper.ids) for paper in papers]
        device = self.weights.device
        positions = torch.cat([torch.arange(length, device=device) for length in lengths])
        states = self.embed(torch.cat([paper.ids.to(device) for paper in papers]), positions)
        for layer in self.lower:
            assert isinstance(layer, Layer)
            heads = layer.heads(states.to(self.kind), lengths)
            states = layer.finish(states, torch.cat([layer.attend(own) for own in heads]))
        return [part.to(torch.bfloat16) for part in torch.split(states, lengths)]

    def read_above(self, below: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Final states (tokens, dimension) of a query, which is the first, and of its candidates."""
        device, size = self.weights.device, self.shape.dimension
        # Lengths are rounded up, and so is their sum: oneDNN compiles its products anew for each new shape,
        # which took as long as the products themselves.
        pieces: list[Tensor] = []
        lengths, paddings = [], []
        for part in below:
            length = len(part)
            spare = -length % PAPER_MULTIPLE
            pieces += [part.to(device).float(), torch.zeros(spare, size, device=device)]
            lengths.append(length + spare)
            paddings.append(torch.zeros(length + spare, device=device))
            paddings[-1][length:] = NOT_SEEN
        rest = -sum(lengths) % LIST_MULTIPLE
        states = torch.cat([*pieces, torch.zeros(rest, size, device=device)])
        for layer in self.upper:
            assert isinstance(layer, Layer)
            *papers, _ = layer.heads(states.to(self.kind), [*lengths, rest])
            query, *candidates = (
                own._replace(padding=padding) for own, padding in zip(papers, paddings, strict=True)
            )
            gathered = [layer.attend(query), *(layer.attend(own, query) for own in candidates)]
            blank = torch.zeros(rest, size, dtype=self.kind, device=device)
            states = layer.finish(states, torch.cat([*gathered, blank]))
        return torch.split(states, [*map(len, pieces), rest])[:-1:2]

    def forward(self, papers: Sequence[Reading], below: Sequence[Tensor]) -> Tensor:
        """Scores (candidates, facets) of the papers behind the first, which is the query."""
        states = self.read_above(below)
        pooled = [paper.pooling.to(part.device) @ part for paper, part in zip(papers, states, strict=True)]
        sizes = [len(part) for part in pooled]
        flat = torch.cat(pooled)
        vectors = [torch.split(F.normalize(flat @ matrix.T, dim=-1), sizes) for matrix in self.projections]
        unit = F.normalize(torch.cat(states), dim=-1).to(self.kind)
        tokens = torch.split(unit, [len(part) for part in states])
        scores = []
        for place in range(1, len(papers)):
            best = (tokens[0] @ tokens[place].T).max(1).values.float()
            row = [
                self._score(number, papers, place, vectors[number], states[0], best)
                for number in range(len(FACETS))
            ]
            scores.append(torch.stack(row))
        return torch.stack(scores)

    def _score(
        self,
        facet: int,
        papers: Sequence[Reading],
        place: int,
        vectors: Sequence[Tensor],
        query_states: Tensor,
        best_tokens: Tensor,
    ) -> Tensor:
        query, candidate = papers[0], papers[place]
        left, right = vectors[0], vectors[place]
        similarities = left[query.facets[facet]] @ right[: candidate.sentences].T
        inside = query.tokens_of(facet)
        shares = torch.softmax(query_states[inside] @ self.token_weights[facet], 0)
        features = (
            similarities.max(1).values.mean(),
            similarities[:, candidate.facets[facet]].max(1).values.mean(),
            left[-1] @ right[-1],
            left[query.sentences + facet] @ right[candidate.sentences + facet],
            best_tokens[inside] @ shares,
        )
        return torch.stack(features) @ self.weights[facet]


_SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "layer_norm_eps")
