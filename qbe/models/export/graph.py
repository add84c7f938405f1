"""ONNX graphs: attention as one operator, weights filled in without PyTorch, and int8, plain or smoothed."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models import reading
from qbe.models.encoding import Floats
from qbe.models.folders import read_weights
from qbe.models.gpu import FLOAT, Graph, dequantize
from qbe.models.session import open_session

onnx = check_package("onnx")

TRANSPOSED = ".T"
MAX_GRAPH_BYTES = 1 << 20  # a graph without weights has only small constants, such as distances of positions

_DOMAIN = "com.microsoft"


def fuse_attention(path: Path, heads: int) -> int:
    """Replace attention in an encoder's ONNX file by one operator; return how often.

    It computes by blocks that fit the cache (FlashAttention; Dao et al., 2022), and saves a fifth of a pass.
    """
    graph = Graph(path)
    attentions = dict(_attentions(graph))
    if not attentions:
        return 0
    settings: Any = {"domain": _DOMAIN, "num_heads": heads}
    for place, node in enumerate(list(graph.nodes)):
        if (result := node.output[0]) in attentions:
            graph.add("MultiHeadAttention", *attentions[result], name=result, **settings)
            graph.nodes[place] = graph.nodes.pop()
    graph.opsets[_DOMAIN] = 1
    path.write_bytes(graph.serialized())
    return len(attentions)


def _attentions(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    # As the exporter writes it: softmax of scaled products, times values, all with heads in front.
    makers, users = {name: node for node in graph.nodes for name in node.output}, graph.users()

    def unscaled(name: str) -> Any:  # what makes a tensor, or what is multiplied with a constant to make it
        node = makers.get(name)
        if node is not None and node.op_type in ("Mul", "Div") and node.input[1] not in makers:
            return makers.get(node.input[0])
        return node

    def heads_behind(name: str) -> str | None:  # before it was reshaped and transposed
        node = unscaled(name)
        for kind in ("Transpose", "Reshape"):
            if node is None or node.op_type != kind:
                return None
            name, node = node.input[0], makers.get(node.input[0])
        return name

    for softmax in graph.nodes:
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
                yield steps[-1].output[0], [str(source) for source in sources]


def stored_model(folder: Path) -> Any:
    """Read the ``config`` of a model in place of the model, for `qbe.models.export.pytorch.positions`."""
    with reading(folder, "a model's config.json", "give the folder of a model"):
        config = SimpleNamespace(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    counts_from_padding = getattr(config, "model_type", "") != "bert"
    padding = SimpleNamespace(padding_idx=config.pad_token_id if counts_from_padding else None)
    return SimpleNamespace(config=config, embeddings=padding)


def store_graph(model: Path, weights: Path, path: Path) -> None:
    """Write the graph of a ``model`` without ``weights``, which `fill_graph` restores to the byte."""

    def key(value: NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
        return value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()

    names: dict[tuple[tuple[int, ...], bytes], str] = {}
    for name, value in read_weights(weights).items():
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
    if path.stat().st_size > MAX_GRAPH_BYTES:
        raise ModelError(
            f"{model}: expected a graph whose weights are those of {weights}, found others in it; export it "
            "without an adapter"
        )


def fill_graph(graph: Path, weights: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Fill a graph of `store_graph` with weights by name; raises ModelError where they do not fit."""
    with reading(graph, "the graph of a model and its weights", "install qbe again, or give another `graph`"):
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


# How much of a channel's range moves into the weights (alpha of eq. 4). Of 0.6, 0.65, 0.7, 0.75 and 0.8 the
# last two keep `facet-encoder-large` nearest to fp32 (docs/lessons.md).
MIGRATION = 0.75
_LEAST = 1e-5  # smaller ranges would make factors without bounds


def int8_models(
    fp32: Path, int8: Path, ranges: Callable[[], Mapping[str, NDArray[Any]]] | None
) -> Iterator[None]:
    """Write ``fp32`` in int8, plain and then smoothed by ``ranges``; activations are scaled at each call."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    settings: Any = {"per_channel": True, "weight_type": QuantType.QInt8}
    quantize_dynamic(fp32, int8, **settings)
    yield
    if ranges is not None:
        with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
            smoothed = Path(temporary, "smoothed.onnx")
            smooth(fp32, ranges(), smoothed)
            quantize_dynamic(smoothed, int8, **settings)
        yield


def channel_ranges(fp32: Path, feeds: Iterable[Mapping[str, NDArray[Any]]]) -> dict[str, Floats]:
    """Measure the largest magnitude (channels,), float32, of each tensor that weights are multiplied with."""
    graph, ranges = Graph(fp32), dict[str, Floats]()
    names = list(_products(graph))
    graph.outputs.clear()
    for name in names:
        graph.declare(graph.outputs, name, FLOAT)
    session = open_session(graph.serialized())
    for feed in feeds:
        for name, states in zip(names, session.run(names, feed), strict=True):
            largest = np.abs(states).reshape(-1, states.shape[-1]).max(axis=0)
            ranges[name] = np.maximum(ranges.get(name, largest), largest)
    return ranges


def smooth(fp32: Path, ranges: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write an equal model whose activations have channels of similar size: SmoothQuant (Xiao et al., 2023).

    By section 4, eq. 3 and 4, channel j of activations X is divided by max|X_j| ** a / max|W_j| ** (1 - a), a
    = MIGRATION, and row j of the weights W multiplied by it. Products of one tensor with several matrices
    share their factors. Raises ModelError for ranges that are not those of this model's tensors.
    """
    graph = Graph(fp32)
    for name, products in _products(graph).items():
        matrices = {node.input[1]: graph.values[node.input[1]] for node in products}
        rows = np.max([np.abs(matrix).max(axis=1) for matrix in matrices.values()], axis=0)
        largest = ranges.get(name, np.empty(0, np.float32))
        if largest.shape != rows.shape:
            raise ModelError(
                f"{fp32}: expected ranges of the {len(rows)} channels of {name}, found {len(largest)}; give "
                "those that were measured with this model"
            )
        channels = np.maximum(largest.astype(np.float32), _LEAST)
        factors = channels**MIGRATION / np.maximum(rows, _LEAST) ** (1 - MIGRATION)
        smoothed = f"{name}/smoothed"
        divisors = graph.constant(1 / factors, np.float32, f"{smoothed}/factors")
        graph.add("Mul", name, divisors, name=smoothed)
        graph.nodes.insert(graph.nodes.index(products[0]), graph.nodes.pop())
        for weight, matrix in matrices.items():  # copies, since others may use the weights, too
            graph.constant(matrix * factors[:, None], np.float32, f"{smoothed}/{weight}")
        for node in products:
            node.input[:] = [smoothed, f"{smoothed}/{node.input[1]}"]
    path.write_bytes(graph.serialized())


def _products(graph: Graph) -> dict[str, list[Any]]:
    products: dict[str, list[Any]] = {}
    matrices = {name for name, value in graph.values.items() if value.ndim == 2}
    for node in graph.nodes:
        if node.op_type == "MatMul" and node.input[1] in matrices:
            products.setdefault(node.input[0], []).append(node)
    return products


def dequantized(int8: Path) -> dict[str, Floats]:
    """Read the weights of a model that `int8_models` wrote.

    Tables and biases have their names, matrices (outputs, inputs) the name of their bias and ``/matrix``.
    """
    graph = Graph(int8)
    dequantize(graph)
    found = {name.removesuffix("_quantized/exact"): value for name, value in graph.values.items()}
    users = graph.users()
    for node in graph.nodes:
        if node.op_type != "MatMul" or not node.input[1].endswith("/exact"):
            continue
        matrix, states, (place,) = graph.values[node.input[1]], node.input[0], node.output
        if states.endswith("/smoothed"):
            matrix = matrix * found[f"{states}/factors"][:, None]
        while not any(user.op_type == "Add" for user in users[place]):
            (place,) = next(use for use in users[place] if use.op_type == "Reshape").output
        added = next(user for user in users[place] if user.op_type == "Add")
        bias = next(name for name in added.input if name in found)
        found[f"{bias}/matrix"] = np.ascontiguousarray(matrix.T)
    return found
