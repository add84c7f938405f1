"""ONNX models in int8: plain, or with the channels of activations smoothed first."""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models.session import open_session

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
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(int8)).graph
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    sources = {output: node.input[0] for node in graph.node if node.input for output in node.output}
    plain = {name.removesuffix("_quantized") for name in found if name.endswith("_quantized")}
    for name in plain:
        scale, zero = found.pop(f"{name}_scale"), found.pop(f"{name}_zero_point")
        found[name] = (found.pop(f"{name}_quantized").astype(np.float32) - zero.astype(np.float32)) * scale
    for node in graph.node:
        weight = node.input[1].removesuffix("_quantized") if node.op_type == "MatMulInteger" else None
        if weight not in plain:
            continue
        matrix, states, (place,) = found[weight], sources[node.input[0]], node.output
        if states.endswith("/smoothed"):
            matrix = matrix * found[f"{states}/factors"][:, None]
        while not any(user.op_type == "Add" for user in users[place]):
            (place,) = next(use for use in users[place] if use.op_type in ("Cast", "Mul", "Reshape")).output
        added = next(user for user in users[place] if user.op_type == "Add")
        bias = next(name for name in added.input if name in found)
        found[f"{bias}/matrix"] = np.ascontiguousarray(matrix.T)
    return found


def sample_texts() -> list[str]:
    """Return the texts of 125 papers of the collection in the package, of all years."""
    papers = resources.files("qbe").joinpath("datasets", "mini", "papers.jsonl.xz").read_bytes()
    records = map(json.loads, lzma.decompress(papers).splitlines()[::24])
    return [f"{record['title']} {record['abstract']}" for record in records]
