"""Weights of a sentence encoder, interpolated between the base encoder and the trained rerankers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from qbe.errors import ModelError
from qbe.train.reranker.base import layer_names
from qbe.train.weights import Weights

_PARTS = {
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
    ``kind`` is its architecture, one of those of `qbe.train.reranker.base.read_base`.

    ``rerankers`` are trainable weights of `qbe.train.reranker.network.Network`; its gates, projections and
    weights of similarities are left out. Interpolation of a fine-tuned model with the original: Wortsman et
    al., *Robust fine-tuning of zero-shot models* (CVPR 2022), section 3. Raises ModelError where the trained
    layers do not fit the base.
    """
    weights = dict(base)
    layers = {int(name.split(".")[1]) for name in rerankers if name.startswith("upper.")}
    count = 1 + max(int(name.split(".")[2]) for name in base if name.startswith("encoder.layer."))
    first, names = count - len(layers), layer_names(kind, count)
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
        for name, bert_name in _PARTS.items():
            parts[f"{bert_name}.{kind}"] = rerankers[f"upper.{layer}.{name}_{kind}"]
    return parts
