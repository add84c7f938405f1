"""Encoding in batches on a GPU, by graphs that are rewritten from exported ones and kept in the cache."""

import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models import made_once, reading
from qbe.models.cards import SCORE, EncoderFiles, ModelFolder, RerankerFiles, model_file, state_output
from qbe.models.encoding import Passed, Window, batches, padded
from qbe.models.formats import CLS
from qbe.models.session import open_session
from qbe.util.files import atomic_file, cache_folder, sha256

onnx = check_package("onnx")

IDS, LENGTHS, SPANS, SUMS, SCORES = "input_ids", "lengths", "spans", "span_sums", "label_scores"
"""Inputs: token ids (batch, tokens) int64; tokens of each row that are no padding (batch,) int32; begin and
end of spans (batch, spans, 2) int64. Outputs: sums of the last states (batch, spans, dimension) float32;
label scores of the spans but the first (batch, spans - 1, labels) float32.
"""

# Tokens of a batch, padding included, of models of up to 384 dimensions and of larger ones: the fastest on an
# H100 (`benchmarks/README.md`, "A GPU").
BATCH_TOKENS, LARGE_BATCH_TOKENS = 65536, 8192

FLOAT, HALF = 1, 10
_INT32, _INT64, _BOOL = 6, 7, 9  # ONNX's numbers of types
_MASKED = -3e4  # added to the scores of padding: their share becomes 0, in half precision, too
_CACHE_FORMAT = 1
_LAST = np.iinfo(np.int64).max
# Operators whose results are of another type than their inputs.
_OF_OTHER_TYPE = frozenset(("Shape", "Size", "Equal", "Less", "Greater", "Not", "And", "Cast"))


class BatchModel:
    """An encoder's model that takes batches, which change results by rounding alone; threads may share it."""

    def __init__(self, files: EncoderFiles, device: str, *, half: bool, tokens: int | None) -> None:
        """Open the model; raises as `encoder_batches` and `qbe.models.session.open_session` do."""
        self._files, self._device, self._half = files, device, half
        self._tokens = tokens or (BATCH_TOKENS if files.metadata.dimension <= 384 else LARGE_BATCH_TOKENS)
        self._sessions: dict[Path | None, Any] = {}
        self._opening = threading.Lock()
        self._session(None)  # so that a model that cannot be used fails here

    def _session(self, tagger: Any) -> Any:
        head, layers = (None, ()) if tagger is None else (tagger.head, tagger.layers)
        with self._opening:
            if head not in self._sessions:
                path = encoder_batches(self._files, head, layers, half=self._half)
                self._sessions[head] = open_session(path, device=self._device)
            return self._sessions[head]

    def run(self, windows: Sequence[Window], tagger: Any = None, pad: int = 0) -> list[Passed]:
        """Compute the results of passes; ``pad`` is the id of padding."""
        session, outputs = self._session(tagger), [SUMS] if tagger is None else [SUMS, SCORES]
        passed: dict[int, Passed] = {}
        for places in batches([len(window.ids) for window in windows], self._tokens):
            sums, *scores = session.run(outputs, self._feed([windows[place] for place in places], pad))
            for row, place in enumerate(places):
                spans = len(windows[place].spans)
                passed[place] = Passed(sums[row, : 1 + spans], scores[0][row, :spans] if scores else None)
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


def encoder_batches(files: EncoderFiles, head: Path | None, layers: Sequence[int], *, half: bool) -> Path:
    """Return the ONNX file of an encoder for batches (with a tagger's ``head`` on ``layers``), made once."""
    last = files.metadata.layers

    def rewrite() -> Graph:
        graph = Graph(files.model)
        dequantize(graph)
        members = pool(graph, mask_padding(graph), state_output(last, last))
        if head is not None:
            tagger = Graph(head)
            dequantize(tagger)
            add_tagger(graph, tagger, [state_output(layer, last) for layer in layers], members)
        if half:
            halve(graph)
        graph.outputs.clear()
        for name in (SUMS,) if head is None else (SUMS, SCORES):
            graph.declare(graph.outputs, name, FLOAT)
        # States of layers stay outputs: so ONNX Runtime fuses, and rounds, what it did from the first.
        for layer in range(last + 1):
            graph.declare(graph.outputs, state_output(layer, last), HALF if half else FLOAT)
        return graph

    return _made(files, [] if head is None else [sha256(head)], rewrite, half=half)


def pair_batches(files: RerankerFiles) -> Path:
    """Return the ONNX file of a pair cross-encoder in half precision; raises as `encoder_batches` does."""
    if files.model.name == model_file("fp16"):
        return files.model
    return _made(files, [], lambda: half_pairs(files.model), half=True)


def half_pairs(model: Path) -> "Graph":
    """Make a pair cross-encoder in half precision of a ``model`` in another."""
    graph = Graph(model)
    halve(graph)
    for node in graph.nodes:  # the score is cast back to single precision
        for names in (node.output, node.input):
            names[:] = [f"{name}/rounded" if name == SCORE else name for name in names]
    graph.add("Cast", f"{SCORE}/rounded", name=SCORE, to=FLOAT)
    return graph


def _made(files: ModelFolder[Any], others: Sequence[str], rewrite: "Callable[[], Graph]", half: bool) -> Path:
    name, digest = files.metadata.name, files.metadata.files[files.model.name]
    parts = "-".join(each[:12] for each in (digest, *others))
    precision = "half" if half else "single"
    target = cache_folder() / "batches" / f"{name}-{parts}-{precision}-{_CACHE_FORMAT}.onnx"

    def make() -> None:
        with atomic_file(target) as stream:
            stream.write(rewrite().serialized())

    return made_once(target, f"making {name} for batches", make)


class Graph:
    """An ONNX graph being rewritten: ``nodes`` in topological order, ``values`` of constants by name."""

    def __init__(self, path: Path) -> None:
        with reading(path, "an ONNX model", "export it again"):
            self._model = onnx.load(str(path))
        graph, self.path = self._model.graph, path
        self.opsets = {each.domain: each.version for each in self._model.opset_import}
        self.inputs, self.outputs = list(graph.input), list(graph.output)
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                tensors[node.output[0]] = node.attribute[0].t
        self.values: dict[str, NDArray[Any]] = {
            name: onnx.numpy_helper.to_array(tensor) for name, tensor in tensors.items()
        }
        self.nodes: list[Any] = [node for node in graph.node if node.output[0] not in tensors]
        del graph.initializer[:]  # which would hold all weights a second time
        self._numbers = count()

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node behind the others; return the name of its result."""
        name = name or f"qbe/{next(self._numbers)}"
        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], name=f"{name}/{kind}", **attributes))
        return name

    def constant(self, value: Any, kind: Any = np.int64, name: str = "") -> str:
        name = name or f"qbe/{next(self._numbers)}"
        self.values[name] = np.array(value, kind)
        return name

    def declare(self, sides: list[Any], name: str, kind: int, shape: Any = None) -> None:
        """Add an input or an output to ``sides``, the inputs or the outputs."""
        sides.append(onnx.helper.make_tensor_value_info(name, kind, shape))

    def users(self) -> dict[str, list[Any]]:
        users: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                users.setdefault(name, []).append(node)
        return users

    def serialized(self) -> bytes:
        """Serialize the graph, without nodes that no output needs."""
        needed, kept = {each.name for each in self.outputs}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(node.input)
        inputs = [each for each in self.inputs if each.name in needed]
        graph = onnx.helper.make_graph(kept[::-1], "qbe", inputs, self.outputs)
        opsets = [onnx.helper.make_opsetid(*each) for each in self.opsets.items()]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=self._model.ir_version)
        for name in filter(needed.__contains__, self.values):
            model.graph.initializer.append(onnx.numpy_helper.from_array(self.values[name], name))
        return bytes(model.SerializeToString())


def dequantize(graph: Graph) -> None:
    """Replace integer products, if there are any, by float ones."""
    makers, users = {name: node for node in graph.nodes for name in node.output}, graph.users()
    nodes, graph.nodes = graph.nodes, []
    replaced: set[str] = set()

    def weights(name: str, zero_point: str, scale: str, axis: int = 0) -> str:
        value, zero, factor = (graph.values[each].astype(np.float32) for each in (name, zero_point, scale))
        shape = [1] * value.ndim
        if factor.size > 1:
            shape[axis] = factor.size
        exact = (value - zero.reshape(shape)) * factor.reshape(shape)
        return graph.constant(exact, np.float32, f"{name}/exact")

    for node in nodes:
        if node.op_type == "DequantizeLinear" and (source := makers.get(node.input[0])) is not None:
            table = weights(source.input[0], node.input[2], node.input[1])
            graph.add("Gather", table, source.input[1], name=node.output[0], axis=0)
        elif node.op_type in ("MatMulInteger", "ConvInteger"):
            # The product is cast, and scaled by both scales; the only user of a value is the next of them.
            quantizer, cast = makers[node.input[0]], users[node.output[0]][0].output[0]
            product = users[cast][0]
            scales = makers[next(name for name in product.input if name != cast)]
            scale = next(name for name in scales.input if name not in quantizer.output)
            states, result = quantizer.input[0], product.output[0]
            if node.op_type == "MatMulInteger":
                graph.add("MatMul", states, weights(node.input[1], node.input[3], scale, -1), name=result)
            else:
                _convolve(graph, states, weights(node.input[1], node.input[3], scale), result)
            replaced.add(result)
        elif node.output[0] not in replaced:
            graph.nodes.append(node)


def _convolve(graph: Graph, states: str, weights: str, result: str) -> None:
    """Write a depthwise convolution as sums of shifts: libraries try algorithms anew for every length."""
    table = graph.values[weights]  # (channels, 1, neighbours)
    width = table.shape[2]
    padding = graph.add("Pad", states, graph.constant([0, 0, width // 2] * 2))
    axis, total = graph.constant([2]), ""
    for place in range(width):
        begin, end = graph.constant([place]), graph.constant([place - width + 1 or _LAST])
        shifted = graph.add("Slice", padding, begin, end, axis)
        product = graph.add("Mul", shifted, graph.constant(table[:, 0, place, None], np.float32))
        name = result if place == width - 1 else ""
        total = graph.add("Add", total, product, name=name) if total else product


def mask_padding(graph: Graph) -> str:
    """Let no token attend to padding, from LENGTHS on; return the name of the numbers of the tokens."""
    graph.declare(graph.inputs, LENGTHS, _INT32, ["batch"])
    nodes, graph.nodes = graph.nodes, []
    zero, one = graph.constant(0), graph.constant(1)
    places = graph.add("Range", zero, graph.add("Gather", graph.add("Shape", IDS), one, axis=0), one)
    fused = [node for node in nodes if node.op_type == "MultiHeadAttention"]
    for node in fused:
        node.input[:] = [*node.input[:3], "", LENGTHS]
    if not fused:
        lengths = graph.add("Unsqueeze", graph.add("Cast", LENGTHS, to=_INT64), graph.constant([1]))
        no, yes = (graph.constant(added, np.float32) for added in (0, _MASKED))
        added = graph.add("Where", graph.add("Less", places, lengths), no, yes)
        mask = graph.add("Unsqueeze", added, graph.constant([1, 2]))
    for node in nodes:
        if not fused and node.op_type == "Softmax":
            node.input[0] = graph.add("Add", node.input[0], mask)
        graph.nodes.append(node)
    return places


def pool(graph: Graph, places: str, states: str) -> str:
    """Sum states over SPANS into SUMS; return the name of the tokens of each (batch, spans, tokens)."""
    graph.declare(graph.inputs, SPANS, _INT64, ["batch", "spans", 2])
    last = graph.constant([2])
    before, not_ended = (
        graph.add("Less", places, graph.add("Unsqueeze", graph.add("Gather", SPANS, side, axis=2), last))
        for side in map(graph.constant, (0, 1))
    )
    members = graph.add("And", graph.add("Not", before), not_ended)
    ones, floats = (graph.add("Cast", name, to=FLOAT) for name in (members, states))
    graph.add("MatMul", ones, floats, name=SUMS)
    return members


def add_tagger(graph: Graph, head: Graph, states: Sequence[str], members: str) -> None:
    """Label the spans but the first by a tagger's ``head``; raises ModelError for a head of another form."""
    prefix = "tagger/"
    for node in head.nodes:
        node.name = prefix + node.name
        for names in (node.input, node.output):
            names[:] = [name and prefix + name for name in names]  # that of an absent input stays empty
    graph.values |= {name and prefix + name: value for name, value in head.values.items()}
    normalized = next((n for n in head.nodes if "tagger/states" in n.input), None)
    present = [node.output[0] for node in head.nodes if node.op_type == "ConstantOfShape"]
    flat = next((node.output[0] for node in head.nodes if node.op_type == "Flatten"), None)
    if normalized is None or flat is None or len(present) != 1:
        raise ModelError(f"{head.path}: expected the head of a tagger as qbe trains it, found another graph")
    one, two = graph.constant([1]), graph.constant([2])
    spans = graph.add("Slice", members, one, graph.constant([_LAST]), one, name="tagger/spans")
    lengths = graph.add("ReduceSum", graph.add("Cast", spans, to=_INT64), two, keepdims=0)
    graph.add("Cast", lengths, name=present[0], to=_BOOL)
    layers = [
        graph.add("LayerNormalization", state, *normalized.input[1:], axis=-1, epsilon=1e-5)
        for state in states
    ]
    rows = next(node.output[0] for node in head.nodes if flat in node.input)
    graph.add("Concat", *layers, name=rows, axis=-1)
    graph.nodes += [node for node in head.nodes if node.output[0] not in (rows, present[0])]
    graph.add("Cast", "tagger/scores", name=SCORES, to=FLOAT)


def halve(graph: Graph) -> None:
    """Compute embeddings, and all that depends on them, in half precision; positions stay in single."""
    half, single, rounded = set[str](), set[str](), dict[str, str]()
    numbers = {name for name, value in graph.values.items() if value.dtype == np.float32}

    def in_half(name: str) -> str:
        if name in numbers:
            largest = np.finfo(np.float16).max
            return graph.constant(np.clip(graph.values[name], -largest, largest), np.float16, f"{name}/half")
        if name in single and name not in rounded:
            rounded[name] = graph.add("Cast", name, name=f"{name}/half", to=HALF)
        return rounded.get(name, name)

    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
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
        graph.nodes.append(node)
