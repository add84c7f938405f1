"""The trunk of the facet rerankers as the encoder that it is when papers are read by themselves."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from qbe.errors import ModelError
from qbe.train.weights import Weights

_PARTS = {
    "out": "attention.output.dense",
    "norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "last": "output.LayerNorm",
}
"""Parts of `qbe.train.reranker.network.Layer` by what BERT calls them."""


def encoder_weights(base: Weights, learned: Weights, share: float) -> dict[str, Tensor]:
    """Weights of a BERT encoder: ``base`` (by Hugging Face's names) but in the layers that rerankers learned,
    which are ``(1 - share) * base + share * learned``.

    ``learned`` are weights of `qbe.train.reranker.network.Network`; its gates, projections and weights of
    similarities have no place in an encoder and are left out. Interpolation of a fine-tuned model with the
    one it began as: Wortsman et al., *Robust fine-tuning of zero-shot models* (CVPR 2022), section 3. Raises
    ModelError where the learned layers do not fit the base.
    """
    mixed = dict(base)
    layers = {int(name.split(".")[1]) for name in learned if name.startswith("upper.")}
    first = (
        1 + max(int(name.split(".")[2]) for name in base if name.startswith("encoder.layer.")) - len(layers)
    )
    for layer in sorted(layers):
        for name, new in _layer(learned, layer).items():
            full = f"encoder.layer.{first + layer}.{name}"
            if full not in base or base[full].shape != new.shape:
                raise ModelError(
                    f"expected rerankers trained from this encoder, found no place in it for their {full} "
                    f"{tuple(new.shape)}; give the --work they were trained in"
                )
            mixed[full] = torch.lerp(base[full].float(), new.float(), share).to(base[full].dtype)
    return mixed


def _layer(learned: Weights, layer: int) -> Mapping[str, Tensor]:
    """The parts of one layer, by BERT's names."""
    found: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        parts = learned[f"upper.{layer}.heads_{kind}"].chunk(3)
        for part, values in zip(("query", "key", "value"), parts, strict=True):
            found[f"attention.self.{part}.{kind}"] = values
        for part, name in _PARTS.items():
            found[f"{name}.{kind}"] = learned[f"upper.{layer}.{part}_{kind}"]
    return found
