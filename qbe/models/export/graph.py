"""ONNX graphs: attention as one operator, weights filled in without PyTorch, and int8, plain or smoothed."""

import hashlib
import json
import lzma
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models import reading
from qbe.models.folders import read_weights
from qbe.models.gpu import Graph, dequantize
from qbe.models.session import open_session
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


Floats = NDArray[np.float32]

# How much of a channel's range moves into the weights (alpha of eq. 4). Of 0.6, 0.65, 0.7, 0.75 and 0.8 the
# last two keep `facet-encoder-large` nearest to fp32 (docs/lessons.md).
MIGRATION = 0.75
_LEAST = 1e-5  # smaller ranges would make factors without bounds


def int8_models(
    fp32: Path, int8: Path, ranges: Callable[[], Mapping[str, NDArray[Any]]] | None
) -> Iterator[None]:
    """Write ``fp32`` in int8, plain and then smoothed by ``ranges``.

    Weights have a scale a channel; activations are quantized at each call (dynamic).
    """
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
    import onnx

    model = onnx.load(str(fp32))
    names = list(_products(model.graph))
    del model.graph.output[:]
    value = onnx.helper.make_tensor_value_info
    model.graph.output.extend(value(name, onnx.TensorProto.FLOAT, None) for name in names)
    ranges: dict[str, Floats] = {}
    session = open_session(model.SerializeToString())
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
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(fp32))
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    divided: dict[str, Any] = {}
    copied: set[str] = set()
    for name, products in _products(graph).items():
        matrices = {node.input[1]: numpy_helper.to_array(weights[node.input[1]]) for node in products}
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
        graph.initializer.append(numpy_helper.from_array(1 / factors, f"{smoothed}/factors"))
        divided[name] = helper.make_node("Mul", [name, f"{smoothed}/factors"], [smoothed], name=smoothed)
        copied |= set(matrices)  # since others may use the weights, too
        for weight, matrix in matrices.items():
            multiplied = numpy_helper.from_array(matrix * factors[:, None], f"{smoothed}/{weight}")
            graph.initializer.append(multiplied)
        for node in products:
            node.input[:] = [smoothed, f"{smoothed}/{node.input[1]}"]
    made = {output for node in graph.node for output in node.output}
    nodes = [node for name, node in divided.items() if name not in made]
    for node in graph.node:
        nodes += [node, *(divided[output] for output in node.output if output in divided)]
    unused = copied - {name for node in nodes for name in node.input}
    constants = [tensor for tensor in graph.initializer if tensor.name not in unused]
    for field, values in ((graph.node, nodes), (graph.initializer, constants)):
        del field[:]
        field.extend(values)
    onnx.save(model, str(path))


def _products(graph: Any) -> dict[str, list[Any]]:
    weights = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    products: dict[str, list[Any]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            products.setdefault(node.input[0], []).append(node)
    return products


def dequantized(int8: Path) -> dict[str, Floats]:
    """Read the weights of a model that `int8_models` wrote.

    Tables and biases have their names, matrices (outputs, inputs) the name of their bias and ``/matrix``.
    """
    graph = Graph(int8)
    dequantize(graph)
    found = {name.removesuffix("_quantized/exact"): value for name, value in graph.values.items()}
    users: dict[str, list[Any]] = {}
    for node in graph.nodes:
        for name in node.input:
            users.setdefault(name, []).append(node)
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


def sample_texts() -> list[str]:
    """Return the texts of 125 papers of the collection in the package, of all years."""
    papers = resources.files("qbe").joinpath("datasets", "mini", "papers.jsonl.xz").read_bytes()
    records = map(json.loads, lzma.decompress(papers).splitlines()[::24])
    return [f"{record['title']} {record['abstract']}" for record in records]
