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
    r"(?:bert\.)?encoder\.layer\.(\d+)\.output\.adapters\.[^.]+\.adapter_(down|up)(?:\.0)?\.(weight|bias)"
)


def apply_adapter(model: Any, folder: Path) -> None:
    """Put the adapter in ``folder`` into every layer of a BERT-family model.

    The folder holds adapter_config.json with adapter.safetensors or pytorch_adapter.bin.
    With x the output of the feed-forward network, r its input, and N the normalization of the layer, a
    layer computes N(x + up(relu(down(N(x + r)))) + r) in place of N(x + r). Of pickled weights only tensors
    are read. Raises ModelError for another kind of adapter, and for one that does not fit the model.
    """
    import torch

    class Adapted(torch.nn.Module):
        def __init__(self, output: Any, tensors: dict[str, Any]) -> None:
            super().__init__()
            hidden, bottleneck = model.config.hidden_size, len(tensors["down.bias"])
            self.output = output
            self.down, self.up = torch.nn.Linear(hidden, bottleneck), torch.nn.Linear(bottleneck, hidden)
            for side in ("down", "up"):
                names = ("weight", "bias")
                getattr(self, side).load_state_dict({name: tensors[f"{side}.{name}"] for name in names})

        def forward(self, hidden_states: torch.Tensor, input_tensor: torch.Tensor) -> torch.Tensor:
            fed = self.output.dense(hidden_states)
            normalized = self.output.LayerNorm(fed + input_tensor)
            adapted = fed + self.up(torch.relu(self.down(normalized)))
            result: torch.Tensor = self.output.LayerNorm(adapted + input_tensor)
            return result

    path = adapter_weights(folder)
    _check_config(folder / ADAPTER_CONFIG)
    try:
        layers = _tensors(path)
        if set(layers) != set(range(len(model.encoder.layer))):
            raise ValueError(f"{len(layers)} layers, where the model has {len(model.encoder.layer)}")
        for number, layer in enumerate(model.encoder.layer):
            layer.output = Adapted(layer.output, layers[number]).eval()
    except Exception as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise ModelError(
            f"{path}: expected the weights of a bottleneck adapter, found: {reason}; give one of this "
            "model as `adapter`"
        ) from error


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


def _tensors(path: Path) -> dict[int, dict[str, Any]]:
    """Tensors by layer and by name, such as ``down.weight``."""
    import torch
    from safetensors.torch import load_file

    pickled = path.suffix != ".safetensors"
    tensors = torch.load(path, map_location="cpu", weights_only=True) if pickled else load_file(path)
    layers: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"a tensor {name}")
        layers.setdefault(int(match[1]), {})[f"{match[2]}.{match[3]}"] = tensor.float()
    return layers
