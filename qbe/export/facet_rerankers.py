"""Export of the facet cross-encoders to ONNX: one graph for each facet, and int8 weights that they share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.export.pytorch import to_int8, to_onnx
from qbe.models.reranker_files import FACET_INPUTS, FACET_OUTPUTS
from qbe.models.session import open_session
from qbe.types import Facet

AXES = {
    "input_ids": {0: "tokens"},
    "pooling": {0: "rows", 1: "tokens"},
    "past_keys": {2: "past"},
    "past_values": {2: "past"},
    "keys": {2: "tokens"},
    "values": {2: "tokens"},
    "vectors": {0: "rows"},
    "tokens": {0: "tokens"},
    "token_logits": {0: "tokens"},
}
SHARED_BYTES = 1024
"""Tensors of at least this size go into the file that the graphs share."""


def export_facets(
    network: Any, folder: Path, trunk: str, example: Mapping[str, Any], precision: str = "int8"
) -> None:
    """Write ``<facet>.onnx`` for each facet and the file ``trunk`` of their common weights into ``folder``.

    ``network`` is a `qbe.train.reranker.network.Network`. The input of a graph is one paper: ``input_ids``
    (tokens,) int64, ``pooling`` (rows, tokens) float32 whose rows average token states, and ``past_keys`` and
    ``past_values`` (joint layers, heads, past tokens, dimension / heads) float32, those of the query if
    the paper is a candidate, and without past tokens if it is the query itself. The outputs are the paper's
    ``keys`` and ``values``, ``vectors`` (rows, dimension) and ``tokens`` (tokens, dimension), all of unit
    length, and ``token_logits`` (tokens,), whose softmax weighs a query's tokens. ``example`` holds inputs
    to trace with; ``precision`` is int8 (dynamic, weights per channel) or fp32.
    """
    import onnx
    import torch

    inputs = {name: torch.from_numpy(np.ascontiguousarray(example[name])) for name in FACET_INPUTS}
    models = {}
    for number, facet in enumerate(Facet):
        path = folder / f"{facet}.onnx"
        to_onnx(one_facet(network, number), inputs, FACET_OUTPUTS, AXES, path)
        if precision == "int8":
            to_int8(path, path)
        models[path] = onnx.load(path)
    _share(list(models.values()), folder / trunk)
    for path, model in models.items():
        onnx.save(model, path)
        open_session(path)  # fails here, not at the first search


def one_facet(network: Any, facet: int) -> Any:
    """The PyTorch module that a facet's graph is traced from, in single precision."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (torch's own convention)

    class OneFacet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(
            self,
            input_ids: torch.Tensor,
            pooling: torch.Tensor,
            past_keys: torch.Tensor,
            past_values: torch.Tensor,
        ) -> tuple[torch.Tensor, ...]:
            length = input_ids.shape[0]
            states = self.network.embed(input_ids, torch.arange(length))
            for layer in self.network.lower:
                states = layer.finish(states, layer.attend(layer.heads(states, [length])[0]))
            keys, values = [], []
            for number, layer in enumerate(self.network.upper):
                heads = layer.heads(states, [length])[0]
                query = heads._replace(keys=past_keys[number], values=past_values[number])
                states = layer.finish(states, layer.attend(heads, query))
                keys.append(heads.keys)
                values.append(heads.values)
            pooled = pooling @ states @ self.network.projections[facet].T
            return (
                torch.stack(keys),
                torch.stack(values),
                F.normalize(pooled, dim=-1),
                F.normalize(states, dim=-1),
                (states * self.network.token_weights[facet]).sum(-1),  # a vector that is not quantized
            )

    return OneFacet().eval()


def example_inputs(
    ids: NDArray[np.int64], pooling: NDArray[np.float32], shape: Sequence[int]
) -> dict[str, Any]:
    """Inputs to trace with, by name.

    ``ids`` (tokens,) and ``pooling`` (rows, tokens) are a candidate's; keys and values of a query of two
    tokens, (layers, heads, 2, size) float32, are random. ``shape`` is (layers, heads, size).

    >>> inputs = example_inputs(np.zeros(3, np.int64), np.ones((5, 3), np.float32), (4, 12, 32))
    >>> inputs["past_keys"].shape
    (4, 12, 2, 32)
    """
    layers, heads, size = shape
    past = np.random.default_rng(0).normal(size=(layers, heads, 2, size)).astype(np.float32)
    return {"input_ids": ids, "pooling": pooling, "past_keys": past, "past_values": past}


def _share(models: Sequence[Any], trunk: Path) -> None:
    """Move the models' large tensors into one file, each content once."""
    from onnx import TensorProto

    places: dict[bytes, tuple[int, int]] = {}
    with trunk.open("wb") as stream:
        for model in models:
            for tensor in model.graph.initializer:
                content = tensor.raw_data
                if len(content) < SHARED_BYTES:
                    continue
                digest = hashlib.sha256(content).digest()
                if digest not in places:
                    stream.write(b"\0" * (-stream.tell() % 64))  # aligned, so that it can be mapped
                    places[digest] = stream.tell(), len(content)
                    stream.write(content)
                offset, length = places[digest]
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                location = {"location": trunk.name, "offset": offset, "length": length}
                for key, value in location.items():
                    entry = tensor.external_data.add()
                    entry.key, entry.value = key, str(value)
