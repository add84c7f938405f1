"""ONNX graphs: attention as one operator, and traced graphs that are filled with weights without PyTorch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models import reading
from qbe.models.large import read_weights
from qbe.util.files import sha256

TRANSPOSED = ".T"
MAX_GRAPH_BYTES = 1 << 20  # a graph without weights has only small constants, such as distances of positions

_DOMAIN = "com.microsoft"


def fuse_attention(path: Path, heads: int) -> int:
    """Replace attention in an encoder's ONNX file by one operator; return how often.

    It computes by blocks that fit the cache (FlashAttention; Dao et al., 2022), and saves a fifth of a pass.
    """
    import onnx
    from onnx import helper
    from onnxruntime.transformers.onnx_model import OnnxModel

    model = OnnxModel(onnx.load(str(path)))
    attentions = list(_attentions(model))
    if not attentions:
        return 0
    makers = model.output_name_to_node()
    model.remove_nodes([makers[result] for _, result in attentions])
    for number, (sources, result) in enumerate(attentions):
        settings: Any = {"name": f"attention_{number}", "domain": _DOMAIN, "num_heads": heads}
        model.add_node(helper.make_node("MultiHeadAttention", sources, [result], **settings))
    model.prune_graph()
    model.topological_sort()
    model.model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    onnx.save(model.model, str(path))
    return len(attentions)


def _attentions(model: Any) -> Iterator[tuple[list[str], str]]:
    """Find attention as the exporter writes it: softmax of scaled products, times values, all with heads in
    front. Yields the names of query, key and value, and that of the result.
    """
    makers, users = model.output_name_to_node(), model.input_name_to_nodes()

    def unscaled(name: str) -> Any:  # what makes a tensor, or what is multiplied with a constant to make it
        node = makers.get(name)
        if node is not None and node.op_type in ("Mul", "Div"):
            constant = makers.get(node.input[1])
            if constant is None or constant.op_type == "Constant":
                return makers.get(node.input[0])
        return node

    def heads_behind(name: str) -> str | None:  # before it was reshaped and transposed
        node = unscaled(name)
        for kind in ("Transpose", "Reshape"):
            if node is None or node.op_type != kind:
                return None
            name, node = node.input[0], makers.get(node.input[0])
        return name

    for softmax in model.nodes():
        product = unscaled(softmax.input[0]) if softmax.op_type == "Softmax" else None
        if product is None or product.op_type != "MatMul":
            continue
        steps = [softmax]
        for kind in ("MatMul", "Transpose", "Reshape"):
            using = users.get(steps[-1].output[0], [])
            if len(using) != 1 or using[0].op_type != kind:
                break
            steps.append(using[0])
        else:
            sources = [heads_behind(name) for name in (*product.input, steps[1].input[1])]
            if None not in sources:
                yield [str(source) for source in sources], steps[-1].output[0]


def stored_model(folder: Path) -> Any:
    """Read the ``config`` of a model in place of the model, for `qbe.models.export.pytorch.positions`."""
    check_package("onnx")
    with reading(folder, "a model's config.json", "give the folder of a model"):
        config = SimpleNamespace(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    counts_from_padding = getattr(config, "model_type", "") != "bert"
    padding = SimpleNamespace(padding_idx=config.pad_token_id if counts_from_padding else None)
    return SimpleNamespace(config=config, embeddings=padding)


def store_graph(model: Path, weights: Path, path: Path) -> None:
    """Write the graph of a ``model`` without ``weights``, which `fill_graph` restores to the byte."""
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
    with reading(graph, "the graph of a model and its weights", "install qbe again, or give another `graph`"):
        import onnx

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
    onnx.save(model, str(path))
