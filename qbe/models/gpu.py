"""Encoding in batches on a GPU: graphs rewritten from exported ones, kept in the cache, and how they are run.

Weights are no longer quantized, attention leaves padding out, token states are summed over spans, and
products are in half precision. That takes the package onnx, not PyTorch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models.cards import SCORE, EncoderFiles, RerankerFiles, model_file, state_output
from qbe.models.formats import CLS
from qbe.models.pooling import Floats
from qbe.models.session import CPU, open_session
from qbe.models.tokenizer import Window
from qbe.util.files import atomic_file, cache_folder, make_once, sha256

log = logging.getLogger(__name__)

IDS, LENGTHS, SPANS, SUMS, SCORES = "input_ids", "lengths", "spans", "span_sums", "label_scores"
"""Inputs: token ids (batch, tokens) int64; tokens of each row that are no padding (batch,) int32; begin and
end of spans (batch, spans, 2) int64. Outputs: sums of the last states (batch, spans, dimension) float32;
label scores of the spans but the first (batch, spans - 1, labels) float32.
"""

# Tokens of a batch, padding included, of models of up to 384 dimensions and of larger ones: the fastest on an
# H100 (`benchmarks/README.md`, "A GPU").
BATCH_TOKENS, LARGE_BATCH_TOKENS = 65536, 8192
STEP = 16  # rows are padded to a multiple of this, in which matrix units compute

FLOAT, HALF = 1, 10
_INT32, _INT64, _BOOL = 6, 7, 9  # ONNX's numbers of types
_MASKED = -3e4  # added to the scores of padding: their share becomes 0, in half precision, too
_CACHE_FORMAT = 1
_LAST = np.iinfo(np.int64).max
# Operators whose results are of another type than their inputs.
_OF_OTHER_TYPE = frozenset(("Shape", "Size", "Equal", "Less", "Greater", "Not", "And", "Cast"))


# Running


class Passed(NamedTuple):
    """Sums (1 + sentences, dimension) of the last states, first the whole's; a hook's ``values``; float32."""

    sums: Floats
    values: Floats | None


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Group the positions of passes, the longest first, in batches of at most ``tokens`` or of one pass."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        if batch and (len(batch) + 1) * padded(lengths[batch[0]]) > tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def padded(length: int) -> int:
    return -(-length // STEP) * STEP


class BatchModel:
    """An encoder's model that takes batches, which change results by rounding alone; threads may share it."""

    def __init__(
        self, files: EncoderFiles, device: str = CPU, *, half: bool = True, tokens: int | None = None
    ) -> None:
        """Open the model; raises as `encoder_batches` and `qbe.models.session.open_session` do."""
        self._files, self._device, self._half = files, device, half
        self._tokens = tokens or (BATCH_TOKENS if files.metadata.dimension <= 384 else LARGE_BATCH_TOKENS)
        self._sessions: dict[Path | None, Any] = {}
        self._opening = threading.Lock()
        self._session(None)  # so that a model that cannot be used fails here

    def _session(self, hook: Any) -> Any:
        head = getattr(hook, "head", None)
        with self._opening:
            if head not in self._sessions:
                layers = () if head is None else hook.layers
                path = encoder_batches(self._files, head, layers, half=self._half)
                self._sessions[head] = open_session(path, device=self._device)
            return self._sessions[head]

    def run(self, windows: Sequence[Window], hook: Any = None, pad: int = 0) -> list[Passed]:
        """Compute the results of passes; ``pad`` is the id of padding."""
        session, last, outputs = self._session(hook), self._files.metadata.layers, [SUMS]
        has_head = getattr(hook, "head", None) is not None
        if hook is not None:
            outputs += [SCORES] if has_head else [state_output(layer, last) for layer in hook.layers]
        passed: dict[int, Passed] = {}
        for places in batches([len(window.ids) for window in windows], self._tokens):
            feed = self._feed([windows[place] for place in places], pad)
            sums, *others = session.run(outputs, feed)
            for row, place in enumerate(places):
                (ids, spans), values = windows[place], None
                if has_head:
                    values = others[0][row, : len(spans)]
                elif hook is not None:
                    states = [each[row, : len(ids)].astype(np.float32) for each in others]
                    values = hook.compute(states, spans)
                passed[place] = Passed(sums[row, : 1 + len(spans)], values)
        return [passed[place] for place in range(len(windows))]

    def _feed(self, windows: Sequence[Window], pad: int) -> dict[str, NDArray[Any]]:
        lengths = np.array([len(window.ids) for window in windows], np.int32)
        ids = np.full((len(windows), padded(int(lengths.max()))), pad, np.int64)
        # A row of spans for each pass, padded with empty ones.
        spans = np.zeros((len(windows), 1 + max(1, *(len(window.spans) for window in windows)), 2), np.int64)
        spans[:, 0, 1] = 1 if self._files.metadata.encoder_format.whole == CLS else lengths
        for row, window in enumerate(windows):
            ids[row, : len(window.ids)] = window.ids
            if window.spans:
                spans[row, 1 : 1 + len(window.spans)] = window.spans
        return {IDS: ids, LENGTHS: lengths, SPANS: spans}


# Making


def encoder_batches(
    files: EncoderFiles, head: Path | None = None, layers: Sequence[int] = (), *, half: bool = True
) -> Path:
    """Return the ONNX file of an encoder that takes batches, made on first use and kept in the cache.

    It outputs the states of all layers, too; with a tagger's ``head`` on ``layers`` it labels sentences.
    Weights in int8 keep their values.
    """
    last = files.metadata.layers

    def rewrite() -> bytes:
        graph = Graph(files.model)
        dequantize(graph)
        mask_padding(graph)
        pool(graph, state_output(last, last))
        outputs = {SUMS: FLOAT}
        if head is not None:
            tagger = Graph(head)
            dequantize(tagger)
            add_tagger(graph, tagger, [state_output(layer, last) for layer in layers])
            outputs[SCORES] = FLOAT
        if half:
            halve(graph)
        states = {state_output(layer, last): HALF if half else FLOAT for layer in range(last + 1)}
        graph.set_outputs(outputs | states)
        return graph.serialized()

    digests = [files.metadata.files[files.model.name], *([sha256(head)] if head is not None else [])]
    return _made(files.metadata.name, digests, rewrite, half=half)


def pair_batches(files: RerankerFiles) -> Path:
    """Return the ONNX file of a pair cross-encoder in half precision, made of fp32 or int8 where it lacks one;
    raises as `encoder_batches` does.
    """
    if files.model.name == model_file("fp16"):
        return files.model
    digests = [files.metadata.files[files.model.name]]
    return _made(files.metadata.name, digests, lambda: half_pairs(files.model), half=True)


def half_pairs(model: Path) -> bytes:
    """Make a pair cross-encoder in half precision of a ``model`` in another."""
    graph = Graph(model)
    halve(graph)
    for node in graph.nodes:  # the score is cast back to single precision
        for names in (node.output, node.input):
            names[:] = [f"{name}/rounded" if name == SCORE else name for name in names]
    graph.nodes.append(_node("Cast", [f"{SCORE}/rounded"], SCORE, to=FLOAT))
    return graph.serialized()


def _made(name: str, digests: Sequence[str], rewrite: Callable[[], bytes], *, half: bool) -> Path:
    parts = "-".join(digest[:12] for digest in digests)
    precision = "half" if half else "single"
    target = cache_folder() / "batches" / f"{name}-{parts}-{precision}-{_CACHE_FORMAT}.onnx"

    def make() -> None:
        log.info("making %s for batches, once, in %s ...", name, target)
        content = rewrite()
        with atomic_file(target) as stream:
            stream.write(content)

    waits = "another process makes %s: waiting for it ..."
    make_once(target, target.is_file, make, lambda: log.info(waits, target))
    return target


# Rewriting


class Graph:
    """An ONNX graph being rewritten: ``nodes`` in topological order, ``values`` of constants by name."""

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
        constants = [node for node in graph.node if node.op_type == "Constant"]
        constants = [node for node in constants if node.attribute[0].name == "value"]
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        tensors |= {node.output[0]: node.attribute[0].t for node in constants}
        self.values: dict[str, NDArray[Any]] = {
            name: onnx.numpy_helper.to_array(tensor) for name, tensor in tensors.items()
        }
        self.nodes: list[Any] = [node for node in graph.node if node.output[0] not in tensors]

    def user(self, name: str) -> Any:
        """Return the only node that takes a value."""
        (node,) = (node for node in self.nodes if name in node.input)
        return node

    def constant(self, name: str, value: Any, kind: Any = np.int64) -> str:
        self.values[name] = np.array(value, kind)
        return name

    def replace(self, exchanged: Mapping[str, Sequence[Any]]) -> None:
        """Put nodes in the place of others, which are named by their first output."""
        self.nodes = [new for node in self.nodes for new in exchanged.get(node.output[0], [node])]

    def add_input(self, name: str, kind: int, shape: Sequence[str | int]) -> None:
        import onnx

        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, list(shape)))

    def set_outputs(self, outputs: Mapping[str, int]) -> None:
        import onnx

        self.outputs = [onnx.helper.make_tensor_value_info(*each, None) for each in outputs.items()]

    def serialized(self) -> bytes:
        """Serialize the graph, without nodes that no output needs."""
        import onnx

        needed, kept = {each.name for each in self.outputs}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(node.input)
        graph = onnx.helper.make_graph(
            kept[::-1],
            "qbe",
            [each for each in self.inputs if each.name in needed],
            self.outputs,
            [onnx.numpy_helper.from_array(v, name) for name, v in self.values.items() if name in needed],
        )
        model = onnx.helper.make_model(graph, opset_imports=list(self._model.opset_import))
        model.ir_version = self._model.ir_version
        return bytes(model.SerializeToString())


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, list(inputs), [output], name=f"{output}/{kind}", **attributes)


def dequantize(graph: Graph) -> None:
    """Replace integer products by float ones in a graph that was quantized; another one stays as it is."""
    makers = {name: node for node in graph.nodes for name in node.output}
    exact: dict[str, list[Any]] = {}  # replacements of nodes, by the name of their result

    def weights(name: str, zero_point: str, scale: str, axis: int = 0) -> str:
        value, zero, factor = (graph.values[each].astype(np.float32) for each in (name, zero_point, scale))
        shape = [1] * value.ndim
        if factor.size > 1:
            shape[axis] = factor.size
        exact_value = (value - zero.reshape(shape)) * factor.reshape(shape)
        return graph.constant(f"{name}/exact", exact_value, np.float32)

    for node in graph.nodes:
        if node.op_type == "DequantizeLinear" and (source := makers.get(node.input[0])) is not None:
            table = weights(source.input[0], node.input[2], node.input[1])
            exact[node.output[0]] = [_node("Gather", [table, source.input[1]], node.output[0], axis=0)]
        elif node.op_type in ("MatMulInteger", "ConvInteger"):
            quantizer = makers[node.input[0]]
            cast = graph.user(node.output[0]).output[0]
            product = graph.user(cast)
            scales = makers[next(name for name in product.input if name != cast)]
            scale = next(name for name in scales.input if name not in quantizer.output)
            states, result, convolves = quantizer.input[0], product.output[0], node.op_type == "ConvInteger"
            table = weights(node.input[1], node.input[3], scale, 0 if convolves else -1)
            exact[result] = [_node("MatMul", [states, table], result)]
            if convolves:
                exact[result] = _convolution(graph, states, table, result)
    graph.replace(exact)


def _convolution(graph: Graph, states: str, weights: str, result: str) -> list[Any]:
    """Write a depthwise convolution as sums of shifts: libraries try algorithms anew for every length."""
    table = graph.values[weights]  # (channels, 1, neighbours)
    width = table.shape[2]
    pads = graph.constant(f"{result}/pads", [0, 0, width // 2] * 2)
    axis = graph.constant(f"{result}/axis", [2])
    nodes, total = [_node("Pad", [states, pads], f"{result}/padded")], ""
    for place in range(width):
        begin = graph.constant(f"{result}/begin{place}", [place])
        end = graph.constant(f"{result}/end{place}", [place - width + 1 or _LAST])
        weight = graph.constant(f"{result}/weight{place}", table[:, 0, place, None], np.float32)
        shifted, product = f"{result}/shifted{place}", f"{result}/product{place}"
        nodes.append(_node("Slice", [f"{result}/padded", begin, end, axis], shifted))
        nodes.append(_node("Mul", [shifted, weight], product))
        if total:
            summed = result if place == width - 1 else f"{result}/sum{place}"
            nodes.append(_node("Add", [total, product], summed))
        total = nodes[-1].output[0]
    return nodes


def mask_padding(graph: Graph) -> None:
    """Let no token attend to padding, the tokens of a row from LENGTHS, a new input, on."""
    graph.add_input(LENGTHS, _INT32, ["batch"])
    fused = [node for node in graph.nodes if node.op_type == "MultiHeadAttention"]
    for node in fused:
        node.input[:] = [*node.input[:3], "", LENGTHS]
    which = graph.constant("padding/which", 1)
    zero, step = (graph.constant(f"padding/from{number}", number) for number in (0, 1))
    places = [  # the numbers from 0 to the number of tokens
        _node("Shape", [IDS], "padding/shape"),
        _node("Gather", ["padding/shape", which], "padding/tokens", axis=0),
        _node("Range", [zero, "padding/tokens", step], "padding/places"),
    ]
    if not fused:
        one, middle = (graph.constant(f"padding/axis{n}", axes) for n, axes in enumerate(([1], [1, 2])))
        no, yes = (graph.constant(f"padding/add{n}", add, np.float32) for n, add in enumerate((0, _MASKED)))
        places += [
            _node("Cast", [LENGTHS], "padding/whole", to=_INT64),
            _node("Unsqueeze", ["padding/whole", one], "padding/lengths"),
            _node("Less", ["padding/places", "padding/lengths"], "padding/is_text"),
            _node("Where", ["padding/is_text", no, yes], "padding/added"),
            _node("Unsqueeze", ["padding/added", middle], "padding/mask"),
        ]
        masked: dict[str, list[Any]] = {}
        for node in (node for node in graph.nodes if node.op_type == "Softmax"):
            scores, node.input[0] = node.input[0], f"{node.output[0]}/masked"
            masked[node.output[0]] = [_node("Add", [scores, "padding/mask"], node.input[0]), node]
        graph.replace(masked)
    graph.nodes = [*places, *graph.nodes]


def pool(graph: Graph, states: str) -> None:
    """Sum states (batch, tokens, dimension) over SPANS, a new input, into SUMS, in single precision."""
    graph.add_input(SPANS, _INT64, ["batch", "spans", 2])
    axis = graph.constant("pool/axis", [2])
    for side, beyond in enumerate(("pool/before", "pool/not_ended")):
        name = graph.constant(f"pool/side{side}", side)
        graph.nodes += [
            _node("Gather", [SPANS, name], f"{name}/of", axis=2),
            _node("Unsqueeze", [f"{name}/of", axis], f"{name}/column"),
            _node("Less", ["padding/places", f"{name}/column"], beyond),
        ]
    graph.nodes += [
        _node("Not", ["pool/before"], "pool/begun"),
        _node("And", ["pool/begun", "pool/not_ended"], "pool/members"),
        _node("Cast", ["pool/members"], "pool/ones", to=FLOAT),
        _node("Cast", [states], "pool/states", to=FLOAT),
        _node("MatMul", ["pool/ones", "pool/states"], SUMS),
    ]


def add_tagger(graph: Graph, head: Graph, states: Sequence[str]) -> None:
    """Label the spans but the first by a tagger's ``head``; raises ModelError for a head of another form."""
    prefix = "tagger/"
    for node in head.nodes:
        node.name = prefix + node.name
        for names in (node.input, node.output):
            names[:] = [name and prefix + name for name in names]  # that of an absent input stays empty
    head.values = {name and prefix + name: value for name, value in head.values.items()}
    normalized = next((n for n in head.nodes if "tagger/states" in n.input), None)
    present = [node.output[0] for node in head.nodes if node.op_type == "ConstantOfShape"]
    flat = next((node for node in head.nodes if node.op_type == "Flatten"), None)
    if normalized is None or flat is None or len(present) != 1:
        raise ModelError(f"{head.path}: expected the head of a tagger as qbe trains it, found another graph")
    rows = head.user(flat.output[0]).output[0]
    names = [f"tagger/states{place}" for place in range(len(states))]
    layers = [
        _node("LayerNormalization", [state, *normalized.input[1:]], name, axis=-1, epsilon=1e-5)
        for state, name in zip(states, names, strict=True)
    ]
    one, end, last = (
        head.constant(prefix + name, [number]) for name, number in (("one", 1), ("end", _LAST), ("last", 2))
    )
    lengths = [
        _node("Cast", ["tagger/spans"], "tagger/counted", to=_INT64),
        _node("ReduceSum", ["tagger/counted", last], "tagger/lengths", keepdims=0),
        _node("Cast", ["tagger/lengths"], present[0], to=_BOOL),
    ]
    head.replace({rows: [*layers, _node("Concat", names, rows, axis=-1)], present[0]: lengths})
    graph.values |= head.values
    graph.nodes += [
        _node("Slice", ["pool/members", one, end, one], "tagger/spans"),
        *head.nodes,
        _node("Cast", ["tagger/scores"], SCORES, to=FLOAT),
    ]


def halve(graph: Graph) -> None:
    """Compute embeddings, and all that depends on them, in half precision; positions stay in single."""
    half: set[str] = set()
    single: set[str] = set()
    rounded: dict[str, str] = {}
    nodes: list[Any] = []
    numbers = {name for name, value in graph.values.items() if value.dtype == np.float32}

    def in_half(name: str) -> str:
        if name in numbers:
            largest = np.finfo(np.float16).max
            return graph.constant(f"{name}/half", np.clip(graph.values[name], -largest, largest), np.float16)
        if name in single and name not in rounded:
            rounded[name] = f"{name}/half"
            nodes.append(_node("Cast", [name], rounded[name], to=HALF))
        return rounded.get(name, name)

    for node in graph.nodes:
        kind, keeps_type = node.op_type, node.op_type not in _OF_OTHER_TYPE
        table = kind == "Gather" and node.input[0] in numbers and graph.values[node.input[0]].ndim == 2
        if kind == "Cast":
            if node.attribute[0].i == FLOAT:
                single.update(node.output)
        elif table or (keeps_type and half.intersection(node.input)):
            node.input[:] = [in_half(name) for name in node.input]
            half.update(node.output)
        elif keeps_type and any(name in numbers or name in single for name in node.input):
            single.update(node.output)
        nodes.append(node)
    graph.nodes = nodes
