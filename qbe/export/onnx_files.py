"""PyTorch modules as ONNX files, and these in lower precision."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def to_onnx(
    module: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    path: Path,
) -> None:
    """Trace a module with example inputs, given by name in the order of its arguments, and write it in fp32.

    ``axes`` names, for each input and output, the axes whose length may vary.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's notes on constants; a parity check decides
        torch.onnx.export(
            module.eval(),  # the exporter would switch a module in training mode, and so dropout, back on
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )


def to_int8(fp32: Path, int8: Path, kept: Sequence[str] = ()) -> None:
    """Quantize the weights of matrix products per channel; activations get a scale at each call (dynamic).

    The nodes named by ``kept`` stay in fp32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    excluded = list(kept)
    quantize_dynamic(fp32, int8, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=excluded)


def feed_forward_products(fp32: Path, *, outputs: bool) -> list[str]:
    """The names of the products of feed-forward layers: of their ``outputs``, which are narrower, or of all.

    The inputs of the outputs have outliers in some encoders, which a scale for all of them does not hold.
    """
    import onnx

    graph = onnx.load(str(fp32), load_external_data=False).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    products = [
        (node.name, shapes[node.input[1]])
        for node in graph.node
        if node.op_type == "MatMul" and len(shapes.get(node.input[1], ())) == 2
    ]
    return [name for name, (rows, columns) in products if rows > columns or (rows < columns and not outputs)]
