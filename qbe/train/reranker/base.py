"""The encoders that training starts from, BERT's or MPNet's: their weights by common names, and encoders of
what was trained.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from qbe.errors import ModelError
from qbe.train.weights import Weights

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

    ``weights`` has BERT's names (`_layer_names`). The embedding of a text's first token is that of position
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
        names = {renamed: name for name, renamed in _layer_names(kind, shape.layers).items()}
        by_bert = {names.get(name, name): part for name, part in weights.items()}
        # A text's tokens are at the positions behind that of padding (create_position_ids_from_input_ids).
        first = int(config["pad_token_id"]) + 1
        return Base(shape, by_bert, first, weights["encoder.relative_attention_bias.weight"].float())
    raise ModelError(f"{folder}: expected an encoder of the kind bert or mpnet, found {kind}; give another")


def _layer_names(kind: str, layers: int) -> dict[str, str]:
    """The names of the layers' weights in BERT, and in the files of an encoder of the ``kind``."""
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


_TRAINED = {
    "out": "attention.output.dense",
    "norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "last": "output.LayerNorm",
}
"""Names in BERT of the parts of `qbe.train.reranker.network.Layer`."""


def interpolated_encoder(
    base: Weights, rerankers: Weights, share: float, kind: str = "bert"
) -> dict[str, Tensor]:
    """Weights of an encoder, by Hugging Face's names: ``(1 - share) * base + share * rerankers``.

    That is in the layers that were trained in the rerankers; all other weights are those of ``base``.
    ``kind`` is its architecture, one of those of `read_base`.

    ``rerankers`` are trainable weights of `qbe.train.reranker.network.Network`; its gates, projections and
    weights of similarities are left out. Interpolation of a fine-tuned model with the original: Wortsman et
    al., *Robust fine-tuning of zero-shot models* (CVPR 2022), section 3. Raises ModelError where the trained
    layers do not fit the base.
    """
    weights = dict(base)
    layers = {int(name.split(".")[1]) for name in rerankers if name.startswith("upper.")}
    count = 1 + max(int(name.split(".")[2]) for name in base if name.startswith("encoder.layer."))
    first, names = count - len(layers), _layer_names(kind, count)
    for layer in sorted(layers):
        for part, trained in _layer(rerankers, layer).items():
            name = names[f"encoder.layer.{first + layer}.{part}"]
            if name not in base or base[name].shape != trained.shape:
                raise ModelError(
                    f"expected rerankers trained from this encoder, found no place in it for their {name} "
                    f"{tuple(trained.shape)}; give the work folder they were trained in as `rerankers`"
                )
            original = base[name]
            weights[name] = torch.lerp(original.float(), trained.float(), share).to(original.dtype)
    return weights


def _layer(rerankers: Weights, layer: int) -> Mapping[str, Tensor]:
    """The parts of one layer, by BERT's names."""
    parts: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        heads = rerankers[f"upper.{layer}.heads_{kind}"].chunk(3)
        for name, values in zip(("query", "key", "value"), heads, strict=True):
            parts[f"attention.self.{name}.{kind}"] = values
        for name, bert_name in _TRAINED.items():
            parts[f"{bert_name}.{kind}"] = rerankers[f"upper.{layer}.{name}_{kind}"]
    return parts
