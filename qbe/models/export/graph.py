"""A traced model without its weights: what it computes, as an ONNX graph that names the weights it lacks.

A model that ships as a difference from a base (`qbe.models.large`) ships with such a graph, so that making it
needs no PyTorch: the graph that PyTorch once traced is filled with the weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError, check_package
from qbe.models.kinds import ENCODER
from qbe.models.large import read_weights
from qbe.models.session import open_session
from qbe.models.sources import weights_file
from qbe.util.files import sha256

TRANSPOSED = ".T"
LARGEST = 1 << 20
"""Bytes of a graph without weights: constants of the model's own, such as its distances of positions."""


class StoredModel:
    """A stored graph and the folder of its weights, in place of the PyTorch model in
    `qbe.models.export.encoder.export_encoder`.

    Raises MissingDependencyError without onnx, ModelError where the folder's configuration cannot be read.
    """

    def __init__(self, folder: Path, graph: Path) -> None:
        check_package("onnx")
        self.weights, self.graph = weights_file(ENCODER, folder), graph
        self.session: Any = None
        try:
            self.config = SimpleNamespace(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(f"{folder}: expected a model's config.json, found {error}") from error
        counts_from_padding = getattr(self.config, "model_type", "") != "bert"
        self.embeddings = SimpleNamespace(
            padding_idx=self.config.pad_token_id if counts_from_padding else None
        )

    def write(self, path: Path) -> None:
        """Write the graph with its weights to an ONNX file; raises ModelError where they do not fit."""
        fill_graph(self.graph, read_weights(self.weights), path)
        self.session = open_session(path)

    def states(self, outputs: Sequence[str], ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
        """The outputs of these names for token ids (batch, tokens), by the ONNX file that was written."""
        return tuple(self.session.run(list(outputs), {"input_ids": ids}))


def store_graph(model: Path, weights: Path, path: Path) -> None:
    """Write the graph of an ONNX ``model`` without the weights of the safetensors file ``weights``.

    Filled again it is the same to the byte, which is checked. Raises ModelError where it is not, or where
    large parts of the model are none of the weights.
    """
    import onnx

    values = read_weights(weights)
    names: dict[tuple[tuple[int, ...], bytes], str] = {}
    for name, value in values.items():
        names[_key(value)] = name
        if value.ndim == 2:
            names.setdefault(_key(value.T), name + TRANSPOSED)
    stored = onnx.load(str(model))
    for tensor in stored.graph.initializer:
        weight = names.get(_key(onnx.numpy_helper.to_array(tensor)))
        if weight is not None:
            tensor.doc_string = weight
            tensor.ClearField("raw_data")
    path.write_bytes(stored.SerializeToString())
    filled = path.with_name(f"{path.name}.filled")
    try:
        fill_graph(path, values, filled)
        if path.stat().st_size > LARGEST or sha256(filled) != sha256(model):
            raise ModelError(
                f"{model}: expected a graph whose weights are those of {weights}, found others in it; "
                "export it without an adapter"
            )
    finally:
        filled.unlink(missing_ok=True)


def fill_graph(graph: Path, weights: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write a graph that `store_graph` wrote as an ONNX model with weights, given by name.

    Raises ModelError for a weight that is missing or has another shape, and for a file that is no ONNX model.
    """
    import onnx

    try:
        model = onnx.load(str(graph))
        for tensor in model.graph.initializer:
            if not (name := tensor.doc_string):
                continue
            value = weights[name.removesuffix(TRANSPOSED)]
            value = value.T if name.endswith(TRANSPOSED) else value
            if value.shape != tuple(tensor.dims):
                raise ValueError(f"{name} {value.shape} in place of {tuple(tensor.dims)}")
            tensor.raw_data = np.ascontiguousarray(value).tobytes()
            tensor.ClearField("doc_string")
    except Exception as error:
        raise ModelError(
            f"{graph}: expected the graph of a model and its weights, found: {error!r}; install qbe again, "
            "or give another `graph`"
        ) from error
    onnx.save(model, str(path))


def refuse_adapter(adapter: Path | None) -> None:
    """Raise UsageError for an adapter: it is put into a PyTorch model."""
    if adapter is not None:
        raise UsageError("`graph` is of no use with `adapter`; drop one of them")


def _key(value: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    """Shape and digest of an array."""
    import hashlib

    return value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
