"""ONNX graphs: attention as one operator, and traced models without their weights.

A model that ships as a difference from a base (`qbe.models.large`) ships with a graph without weights, so
that making it needs no PyTorch: the graph that PyTorch once traced is filled with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models.cards import ENCODER
from qbe.models.folders import weights_file
from qbe.models.large import read_weights
from qbe.models.session import open_session
from qbe.util.files import sha256

TRANSPOSED = ".T"
MAX_GRAPH_BYTES = 1 << 20
"""A graph without weights has only small constants of its own, such as its distances of positions."""

_DOMAIN = "com.microsoft"
_SCALED = ("Mul", "Div")


class _Attention(NamedTuple):
    query: str
    key: str
    value: str
    result: str


def fuse_attention(path: Path, heads: int) -> int:
    """Replace each attention in an encoder's ONNX file by one operator; return how many were replaced.

    The operator computes by blocks that fit the cache (FlashAttention; Dao et al., 2022) and saves a fifth of
    a pass. Attention with a mask or a bias by position, such as MPNet's, stays as it is.
    """
    import onnx
    from onnx import helper
    from onnxruntime.transformers.onnx_model import OnnxModel

    model = OnnxModel(onnx.load(str(path)))
    attentions = list(_attentions(model.model.graph))
    if not attentions:
        return 0
    makers = model.output_name_to_node()
    model.remove_nodes([makers[attention.result] for attention in attentions])
    model.add_nodes(
        [
            helper.make_node(
                "MultiHeadAttention",
                [attention.query, attention.key, attention.value],
                [attention.result],
                name=f"attention_{number}",
                domain=_DOMAIN,
                num_heads=heads,
            )
            for number, attention in enumerate(attentions)
        ]
    )
    model.prune_graph()
    model.topological_sort()
    model.model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    onnx.save(model.model, str(path))
    return len(attentions)


def _attentions(graph: Any) -> Iterator[_Attention]:
    """Find attention as the exporter writes it: softmax of scaled products, times values, all with heads in
    front.
    """
    makers = {name: node for node in graph.node for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    for softmax in (node for node in graph.node if node.op_type == "Softmax"):
        product = _unscaled(makers, softmax.input[0])
        if product is None or product.op_type != "MatMul":
            continue
        weighted = _only_user(users, softmax.output[0], "MatMul")
        turned = weighted and _only_user(users, weighted.output[0], "Transpose")
        result = turned and _only_user(users, turned.output[0], "Reshape")
        if result is None:
            continue
        sources = [_with_heads_behind(makers, name) for name in (*product.input, weighted.input[1])]
        if None not in sources:
            query, key, value = (str(source) for source in sources)
            yield _Attention(query, key, value, result.output[0])


def _unscaled(makers: Mapping[str, Any], name: str) -> Any:
    """Return the node that makes a tensor, or its unscaled input where that is a product with a constant."""
    node = makers.get(name)
    if node is not None and node.op_type in _SCALED:
        constant = makers.get(node.input[1])
        if constant is None or constant.op_type == "Constant":
            return makers.get(node.input[0])
    return node


def _with_heads_behind(makers: Mapping[str, Any], name: str) -> str | None:
    """Return the states that were reshaped and transposed to get the heads in front, or None."""
    node = _unscaled(makers, name)
    for kind in ("Transpose", "Reshape"):
        if node is None or node.op_type != kind:
            return None
        name, node = node.input[0], makers.get(node.input[0])
    return name


def _only_user(users: Mapping[str, list[Any]], name: str, kind: str) -> Any:
    using = users.get(name, [])
    return using[0] if len(using) == 1 and using[0].op_type == kind else None


class StoredModel:
    """A stored graph with its weights, in place of the PyTorch model in `export_encoder`."""

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
        fill_graph(self.graph, read_weights(self.weights), path)
        self.session = open_session(path)

    def states(self, outputs: Sequence[str], ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
        return tuple(self.session.run(list(outputs), {"input_ids": ids}))


def store_graph(model: Path, weights: Path, path: Path) -> None:
    """Write the graph of an ONNX ``model`` without the weights of the safetensors file ``weights``.

    Raises ModelError where filling it does not restore the model to the byte, or large parts are none of the
    weights.
    """
    import onnx

    def key(value: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
        return value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()

    values = read_weights(weights)
    names: dict[tuple[tuple[int, ...], bytes], str] = {}
    for name, value in values.items():
        names[key(value)] = name
        if value.ndim == 2:
            names.setdefault(key(value.T), name + TRANSPOSED)
    stored = onnx.load(str(model))
    for tensor in stored.graph.initializer:
        weight = names.get(key(onnx.numpy_helper.to_array(tensor)))
        if weight is not None:
            tensor.doc_string = weight
            tensor.ClearField("raw_data")
    path.write_bytes(stored.SerializeToString())
    filled = path.with_name(f"{path.name}.filled")
    try:
        fill_graph(path, values, filled)
        if path.stat().st_size > MAX_GRAPH_BYTES or sha256(filled) != sha256(model):
            raise ModelError(
                f"{model}: expected a graph whose weights are those of {weights}, found others in it; "
                "export it without an adapter"
            )
    finally:
        filled.unlink(missing_ok=True)


def fill_graph(graph: Path, weights: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Fill a graph of `store_graph` with weights by name; raises ModelError where they do not fit."""
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
