"""Bottleneck adapters on a BERT-family encoder, such as SPECTER2's, from the files of the adapters library.

The adapter is that of Pfeiffer et al. (AdapterFusion, EACL 2021): in each layer, behind the feed-forward
network, a projection down, a rectifier and a projection up.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from qbe.errors import ModelError
from qbe.models.sources import ADAPTER_CONFIG, adapter_weights

_EXPECTED = {
    "mh_adapter": False,
    "output_adapter": True,
    "non_linearity": "relu",
    "original_ln_before": True,
    "original_ln_after": True,
    "residual_before_ln": True,
    "adapter_residual_before_ln": False,
    "ln_before": False,
    "ln_after": False,
    "is_parallel": False,
    "scaling": 1.0,
    "use_gating": False,
    "phm_layer": False,
    "inv_adapter": None,
    "cross_adapter": False,
    "leave_out": [],
}
"""The settings of such an adapter, as the adapters library calls them."""

_REQUIRED = ("mh_adapter", "output_adapter", "non_linearity", "original_ln_before")
"""Settings that a file must contain; for the others the library's default is the value above."""

_NAME = re.compile(
    r"(?:bert\.)?encoder\.layer\.(\d+)\.output\.adapters\.[^.]+\.adapter_(down\.0|up)\.(weight|bias)"
)


def apply_adapter(model: Any, folder: Path) -> None:
    """Put the adapter in ``folder`` into every layer of a BERT-family model.

    The folder holds adapter_config.json with adapter.safetensors or pytorch_adapter.bin.
    With x the output of the feed-forward network, r its input, and N the normalization of the layer, a
    layer computes N(x + up(relu(down(N(x + r)))) + r) in place of N(x + r). Of pickled weights only tensors
    are read. Raises ModelError for another kind of adapter, and for one that does not fit the model.
    """
    import torch

    path = adapter_weights(folder)
    _check_config(folder / ADAPTER_CONFIG)
    projections = _projections(path)
    layers = model.encoder.layer
    if set(projections) != set(range(len(layers))):
        raise ModelError(
            f"{path}: expected an adapter of {len(layers)} layers, as the model has them, found "
            f"{len(projections)}; give an adapter of this model"
        )

    class Adapted(torch.nn.Module):
        def __init__(self, output: Any, down: torch.nn.Linear, up: torch.nn.Linear) -> None:
            super().__init__()
            self.output, self.down, self.up = output, down, up

        def forward(self, hidden_states: torch.Tensor, input_tensor: torch.Tensor) -> torch.Tensor:
            fed = self.output.dense(hidden_states)
            normalized = self.output.LayerNorm(fed + input_tensor)
            adapted = fed + self.up(torch.relu(self.down(normalized)))
            result: torch.Tensor = self.output.LayerNorm(adapted + input_tensor)
            return result

    for number, layer in enumerate(layers):
        down, up = (_linear(path, projections[number], side) for side in ("down.0", "up"))
        hidden = model.config.hidden_size
        if down.in_features != hidden or up.out_features != hidden or down.out_features != up.in_features:
            raise ModelError(
                f"{path}: expected projections of {hidden} numbers down and up again, found "
                f"{down.in_features} to {down.out_features} and {up.in_features} to {up.out_features}; give "
                "an adapter of this model"
            )
        layer.output = Adapted(layer.output, down, up).eval()


def _check_config(path: Path) -> None:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["config"]
        actual = {name: settings[name] for name in _EXPECTED if name in settings or name in _REQUIRED}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"{path}: expected the settings of a bottleneck adapter, found {error!r}; give another `adapter`"
        ) from error
    for name, value in actual.items():
        if value != _EXPECTED[name]:
            raise ModelError(
                f"{path}: expected an adapter of Pfeiffer's kind, with {name} {_EXPECTED[name]}, found "
                f"{value}; give another `adapter`"
            )


def _projections(path: Path) -> dict[int, dict[str, Any]]:
    """Tensors by layer and by name, such as ``down.0.weight``."""
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        projections: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            match = _NAME.fullmatch(name)
            if match is None:
                raise ValueError(f"a tensor {name}")
            projections.setdefault(int(match[1]), {})[f"{match[2]}.{match[3]}"] = tensor.float()
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"{path}: expected the weights of a bottleneck adapter, found: {reason}; give another `adapter`"
        ) from error
    return projections


def _linear(path: Path, tensors: dict[str, Any], side: str) -> Any:
    import torch

    weight, bias = (tensors.get(f"{side}.{name}") for name in ("weight", "bias"))
    if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ModelError(
            f"{path}: expected a matrix and a vector adapter_{side}, found others; give another `adapter`"
        )
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
    linear.load_state_dict({"weight": weight, "bias": bias})
    return linear
