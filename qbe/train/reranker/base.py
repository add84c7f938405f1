"""The encoders that training starts from, BERT's or MPNet's, with their weights by common names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from qbe.errors import ModelError

MAX_DISTANCE = 128
"""From how many tokens on all distances have the same bias in MPNet (its ``compute_position_bias``)."""


class Shape(NamedTuple):
    """Sizes of an encoder."""

    dimension: int
    heads: int
    layers: int
    epsilon: float


class Base(NamedTuple):
    """An encoder's configuration and weights.

    ``weights`` has BERT's names (`layer_names`). The embedding of a text's first token is that of position
    ``first_position``. ``distances`` (buckets, heads) is the bias of the attention logits by the distance of
    two tokens, as in MPNet (Song et al., 2020); None where there is none.
    """

    shape: Shape
    weights: Mapping[str, Tensor]
    first_position: int = 0
    distances: Tensor | None = None


def read_base(folder: Path) -> Base:
    """The encoder in ``folder`` (config.json, model.safetensors).

    Raises ModelError for an architecture other than BERT and MPNet.
    """
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    sizes = ("hidden_size", "num_attention_heads", "num_hidden_layers", "layer_norm_eps")
    shape = Shape(*(config[name] for name in sizes))
    weights = load_file(folder / "model.safetensors")
    kind = config.get("model_type", "bert")
    if kind == "bert":
        return Base(shape, weights)
    if kind == "mpnet":
        names = {renamed: name for name, renamed in layer_names(kind, shape.layers).items()}
        by_bert = {names.get(name, name): part for name, part in weights.items()}
        # A text's tokens are at the positions behind that of padding (create_position_ids_from_input_ids).
        first = int(config["pad_token_id"]) + 1
        return Base(shape, by_bert, first, weights["encoder.relative_attention_bias.weight"].float())
    raise ModelError(f"{folder}: expected an encoder of the kind bert or mpnet, found {kind}; give another")


def layer_names(kind: str, layers: int) -> dict[str, str]:
    """The names of the layers' weights in BERT, and in the files of an encoder of the ``kind``.

    >>> names = layer_names("mpnet", 1)
    >>> names["encoder.layer.0.attention.self.query.weight"]
    'encoder.layer.0.attention.attn.q.weight'
    >>> names["encoder.layer.0.output.dense.bias"]
    'encoder.layer.0.output.dense.bias'
    """
    part_names = {part: part for part in _PARTS}
    if kind == "mpnet":
        part_names |= _MPNET
    return {
        f"encoder.layer.{layer}.{bert}.{leaf}": f"encoder.layer.{layer}.{name}.{leaf}"
        for layer in range(layers)
        for bert, name in part_names.items()
        for leaf in ("weight", "bias")
    }


_MPNET = {
    "attention.self.query": "attention.attn.q",
    "attention.self.key": "attention.attn.k",
    "attention.self.value": "attention.attn.v",
    "attention.output.dense": "attention.attn.o",
    "attention.output.LayerNorm": "attention.LayerNorm",
}
_PARTS = (*_MPNET, "intermediate.dense", "output.dense", "output.LayerNorm")


def position_bias(distances: Tensor, length: int) -> Tensor:
    """The bias (heads, length, length) of the attention of each token, in rows, for each other.

    ``distances`` (buckets, heads): half of the buckets are for tokens that come later, and of each half again
    half for small distances, one each, the others for ranges that grow logarithmically up to MAX_DISTANCE
    (Raffel et al., 2020, section 2.1).

    >>> buckets = torch.arange(32.0)[:, None]
    >>> position_bias(buckets, 3)[0].tolist()
    [[0.0, 17.0, 18.0], [1.0, 0.0, 17.0], [2.0, 1.0, 0.0]]
    """
    half = len(distances) // 2
    exact = half // 2
    places = torch.arange(length, device=distances.device)
    steps = places[:, None] - places[None, :]
    apart = steps.abs()
    ratio = torch.log(apart.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact)
    ranges = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
    buckets = torch.where(apart < exact, apart, ranges) + half * (steps < 0)
    return distances[buckets].permute(2, 0, 1)
