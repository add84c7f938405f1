"""Graphs for batches on a GPU, rewritten from exported ones: weights that are no longer quantized, padding
that attention leaves out, sums of token states over spans, products in half precision.

An export is made for one text a call on a CPU (`qbe.models.export.encoder`): int8 with a scale for all numbers of a
call, no padding, and the states of all tokens as its result. Of these graphs those for GPUs are made, without
PyTorch, by the package onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package

IDS, LENGTHS, SPANS, SUMS, SCORES = "input_ids", "lengths", "spans", "span_sums", "label_scores"
"""Inputs: token ids (batch, tokens) int64; tokens of each row that are no padding (batch,) int32; begin and
end of spans (batch, spans, 2) int64. Outputs: sums of the last states (batch, spans, dimension) float32;
label scores of the spans but the first (batch, spans - 1, labels) float32.
"""

_MASKED = -3e4
"""What is added to the score of a token that is padding: its share becomes 0, in half precision, too."""

FLOAT, HALF = 1, 10
_INT32, _INT64, _BOOL = 6, 7, 9
"""ONNX's numbers of types."""

_OF_OTHER_TYPE = frozenset(("Shape", "Size", "Equal", "Less", "Greater", "Not", "And", "Cast"))
"""Operators whose results have not the type of what they take."""

_LAST = np.iinfo(np.int64).max


class Graph:
    """An ONNX graph in the course of being rewritten: its ``nodes`` in the order of computing, and the
    ``values`` of its constants by name.

    Raises MissingDependencyError without onnx, ModelError for a file that is no ONNX model.
    """

    def __init__(self, path: Path) -> None:
        check_package("onnx")
        import onnx

        try:
            self._model = onnx.load(str(path))
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"{path}: expected an ONNX model, found: {reason}; export it again") from error
        graph, self.path = self._model.graph, path
        self.inputs, self.outputs = list(graph.input), list(graph.output)
        self.values: dict[str, NDArray[Any]] = {
            tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer
        }
        self.nodes: list[Any] = []
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.values[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
            else:
                self.nodes.append(node)

    def users(self, name: str) -> list[Any]:
        """The nodes that take a value."""
        return [node for node in self.nodes if name in node.input]

    def constant(self, name: str, value: Any, kind: Any) -> str:
        """The name, after the constant of that name was set."""
        self.values[name] = np.array(value, kind)
        return name

    def replace(self, exchange: Callable[[Any], Sequence[Any]]) -> None:
        """Put what ``exchange`` gives in the place of each node."""
        self.nodes = [new for node in self.nodes for new in exchange(node)]

    def rename(self, prefix: str) -> None:
        """Put a prefix before all names."""

        def renamed(name: str) -> str:
            return name and prefix + name

        for node in self.nodes:
            node.name = prefix + node.name
            node.input[:] = [renamed(name) for name in node.input]
            node.output[:] = [renamed(name) for name in node.output]
        self.values = {renamed(name): value for name, value in self.values.items()}

    def add_input(self, name: str, kind: int, shape: Sequence[str | int]) -> None:
        """Add an input."""
        import onnx

        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, list(shape)))

    def set_outputs(self, outputs: Mapping[str, int]) -> None:
        """Make these, of these types, the outputs."""
        import onnx

        self.outputs = [onnx.helper.make_tensor_value_info(*each, None) for each in outputs.items()]

    def serialized(self) -> bytes:
        """The content of an ONNX file of the graph, what no output needs left out."""
        import onnx

        needed, kept = {each.name for each in self.outputs}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(node.input)
        graph = onnx.helper.make_graph(
            list(reversed(kept)),
            "qbe",
            [each for each in self.inputs if each.name in needed],
            self.outputs,
            [onnx.numpy_helper.from_array(v, name) for name, v in self.values.items() if name in needed],
        )
        model = onnx.helper.make_model(graph, opset_imports=list(self._model.opset_import))
        model.ir_version = self._model.ir_version
        content: bytes = model.SerializeToString()
        return content


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, list(inputs), [output], name=f"{output}/{kind}", **attributes)


def dequantize(graph: Graph) -> None:
    """Put products of numbers in the place of products of integers, in a graph whose weights were quantized
    (`qbe.models.export.quantization.to_int8`); another one stays as it is.
    """
    makers = {name: node for node in graph.nodes for name in node.output}
    exact: dict[str, list[Any]] = {}
    """What takes the place of a node, by the name of its result."""

    def weights(name: str, zero_point: str, scale: str, axis: int = 0) -> str:
        value, zero, factor = (graph.values[each].astype(np.float32) for each in (name, zero_point, scale))
        shape = [1] * value.ndim
        if factor.size > 1:
            shape[axis] = factor.size
        return graph.constant(
            f"{name}/exact", (value - zero.reshape(shape)) * factor.reshape(shape), np.float32
        )

    for node in graph.nodes:
        if node.op_type == "DequantizeLinear" and (source := makers.get(node.input[0])) is not None:
            table = weights(source.input[0], node.input[2], node.input[1])
            exact[node.output[0]] = [_node("Gather", [table, source.input[1]], node.output[0], axis=0)]
        elif node.op_type in ("MatMulInteger", "ConvInteger"):
            quantizer = makers[node.input[0]]
            (cast,) = graph.users(node.output[0])
            (product,) = graph.users(cast.output[0])
            scales = makers[next(name for name in product.input if name != cast.output[0])]
            scale = next(name for name in scales.input if name not in quantizer.output)
            states, result, convolves = quantizer.input[0], product.output[0], node.op_type == "ConvInteger"
            table = weights(node.input[1], node.input[3], scale, 0 if convolves else -1)
            exact[result] = (
                _convolution(graph, states, table, result)
                if convolves
                else [_node("MatMul", [states, table], result)]
            )
    graph.replace(lambda node: exact.get(node.output[0], [node]))


def _convolution(graph: Graph, states: str, weights: str, result: str) -> list[Any]:
    """A convolution of each channel by itself over neighbours, as sums of shifted states (batch, channels,
    tokens): libraries of convolutions first try which way is the fastest, for every new length of a text.
    """
    table = graph.values[weights]  # (channels, 1, neighbours)
    width = table.shape[2]
    ends = (0, 0, width // 2)
    pads = graph.constant(f"{result}/pads", [*ends, *ends], np.int64)
    axis = graph.constant(f"{result}/axis", [2], np.int64)
    nodes, total = [_node("Pad", [states, pads], f"{result}/padded")], ""
    for place in range(width):
        begin = graph.constant(f"{result}/begin{place}", [place], np.int64)
        stop = place - width + 1
        end = graph.constant(f"{result}/end{place}", [stop if stop else _LAST], np.int64)
        weight = graph.constant(f"{result}/weight{place}", table[:, 0, place, None], np.float32)
        shifted, product = f"{result}/shifted{place}", f"{result}/product{place}"
        nodes += [
            _node("Slice", [f"{result}/padded", begin, end, axis], shifted),
            _node("Mul", [shifted, weight], product),
        ]
        if total:
            nodes.append(
                _node("Add", [total, product], result if place == width - 1 else f"{result}/sum{place}")
            )
        total = nodes[-1].output[0]
    return nodes


def mask_padding(graph: Graph) -> None:
    """Let no token attend to padding: to tokens of a row from LENGTHS on, a new input."""
    graph.add_input(LENGTHS, _INT32, ["batch"])
    fused = [node for node in graph.nodes if node.op_type == "MultiHeadAttention"]
    for node in fused:
        node.input[:] = [*node.input[:3], "", LENGTHS]
    places = _places(graph)
    if not fused:
        one, middle = (
            graph.constant(f"padding/axis{n}", axes, np.int64) for n, axes in enumerate(([1], [1, 2]))
        )
        no, yes = (graph.constant(f"padding/add{n}", add, np.float32) for n, add in enumerate((0, _MASKED)))
        places += [
            _node("Cast", [LENGTHS], "padding/whole", to=_INT64),
            _node("Unsqueeze", ["padding/whole", one], "padding/lengths"),
            _node("Less", ["padding/places", "padding/lengths"], "padding/is_text"),
            _node("Where", ["padding/is_text", no, yes], "padding/added"),
            _node("Unsqueeze", ["padding/added", middle], "padding/mask"),
        ]

        def masked(node: Any) -> list[Any]:
            if node.op_type != "Softmax":
                return [node]
            scores = node.input[0]
            node.input[0] = f"{node.output[0]}/masked"
            return [_node("Add", [scores, "padding/mask"], node.input[0]), node]

        graph.replace(masked)
    graph.nodes = [*places, *graph.nodes]


def _places(graph: Graph) -> list[Any]:
    """Nodes that compute ``padding/places``, the numbers from 0 to the number of tokens."""
    which = graph.constant("padding/which", 1, np.int64)
    zero, step = (graph.constant(f"padding/from{number}", number, np.int64) for number in (0, 1))
    return [
        _node("Shape", [IDS], "padding/shape"),
        _node("Gather", ["padding/shape", which], "padding/tokens", axis=0),
        _node("Range", [zero, "padding/tokens", step], "padding/places"),
    ]


def pool(graph: Graph, states: str) -> None:
    """Sum states (batch, tokens, dimension) over SPANS, a new input, into SUMS, in single precision."""
    graph.add_input(SPANS, _INT64, ["batch", "spans", 2])
    axis = graph.constant("pool/axis", [2], np.int64)
    sides = [graph.constant(f"pool/side{number}", number, np.int64) for number in (0, 1)]
    graph.nodes += [
        *(_node("Gather", [SPANS, side], f"{side}/of", axis=2) for side in sides),
        *(_node("Unsqueeze", [f"{side}/of", axis], f"{side}/column") for side in sides),
        _node("Less", ["padding/places", f"{sides[0]}/column"], "pool/before"),
        _node("Not", ["pool/before"], "pool/begun"),
        _node("Less", ["padding/places", f"{sides[1]}/column"], "pool/not_ended"),
        _node("And", ["pool/begun", "pool/not_ended"], "pool/members"),
        _node("Cast", ["pool/members"], "pool/ones", to=FLOAT),
        _node("Cast", [states], "pool/states", to=FLOAT),
        _node("MatMul", ["pool/ones", "pool/states"], SUMS),
    ]


def add_tagger(graph: Graph, head: Graph, states: Sequence[str]) -> None:
    """Label the sentences of a batch, the spans but the first, by a tagger's ``head``, which was made for one
    text (`qbe.models.export.tagger`), from the ``states`` (batch, tokens, dimension) that it takes, into SCORES.

    Raises ModelError for a head of another form.
    """
    head.rename("tagger/")
    normalized = next((n for n in head.nodes if "tagger/states" in n.input), None)
    present = [node for node in head.nodes if node.op_type == "ConstantOfShape"]
    flat = next((node for node in head.nodes if node.op_type == "Flatten"), None)
    if normalized is None or flat is None or len(present) != 1:
        raise ModelError(f"{head.path}: expected the head of a tagger as qbe trains it, found another graph")
    (rows,) = head.users(flat.output[0])
    names = [f"tagger/states{place}" for place in range(len(states))]
    layers = [
        _node("LayerNormalization", [state, *normalized.input[1:]], name, axis=-1, epsilon=1e-5)
        for state, name in zip(states, names, strict=True)
    ]
    one, end, last = (
        head.constant(f"tagger/{name}", [number], np.int64)
        for name, number in (("one", 1), ("end", _LAST), ("last", 2))
    )
    exchanged = {
        rows.output[0]: [*layers, _node("Concat", names, rows.output[0], axis=-1)],
        present[0].output[0]: [
            _node("Cast", ["tagger/spans"], "tagger/counted", to=_INT64),
            _node("ReduceSum", ["tagger/counted", last], "tagger/lengths", keepdims=0),
            _node("Cast", ["tagger/lengths"], present[0].output[0], to=_BOOL),
        ],
    }
    head.replace(lambda node: exchanged.get(node.output[0], [node]))
    graph.values |= head.values
    graph.nodes += [
        _node("Slice", ["pool/members", one, end, one], "tagger/spans"),
        *head.nodes,
        _node("Cast", ["tagger/scores"], SCORES, to=FLOAT),
    ]


def halve(graph: Graph) -> None:
    """Compute in half precision: what comes out of tables of embeddings, and all that is computed from it.

    Numbers that only positions are computed from stay as they are. A number in single precision that meets
    one in half precision is rounded.
    """
    half: set[str] = set()
    single: set[str] = set()
    rounded: dict[str, str] = {}
    nodes: list[Any] = []

    def is_number(name: str) -> bool:
        return name in graph.values and graph.values[name].dtype == np.float32

    def in_half(name: str) -> str:
        if is_number(name):
            largest = np.finfo(np.float16).max
            limited = np.clip(graph.values[name], -largest, largest)
            return graph.constant(f"{name}/half", limited, np.float16)
        if name in single:
            if name not in rounded:
                rounded[name] = f"{name}/half"
                nodes.append(_node("Cast", [name], rounded[name], to=HALF))
            return rounded[name]
        return name

    for node in graph.nodes:
        kind = node.op_type
        table = kind == "Gather" and is_number(node.input[0]) and graph.values[node.input[0]].ndim == 2
        if kind == "Cast":
            if node.attribute[0].i == FLOAT:
                single.update(node.output)
        elif table or (kind not in _OF_OTHER_TYPE and half.intersection(node.input)):
            node.input[:] = [in_half(name) for name in node.input]
            half.update(node.output)
        elif any(is_number(name) or name in single for name in node.input) and kind not in _OF_OTHER_TYPE:
            single.update(node.output)
        nodes.append(node)
    graph.nodes = nodes


def to_single(graph: Graph, output: str) -> None:
    """Make an output, which `halve` left in half precision, one in single precision again."""
    for node in graph.nodes:
        node.output[:] = [f"{name}/rounded" if name == output else name for name in node.output]
        node.input[:] = [f"{name}/rounded" if name == output else name for name in node.input]
    graph.nodes.append(_node("Cast", [f"{output}/rounded"], output, to=FLOAT))
