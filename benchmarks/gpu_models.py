"""Models that `benchmarks.gpu` needs and no package has: of the true shape, with weights that are drawn."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.models.cards import (
    ENCODER,
    GRAPH,
    PAIR_INPUTS,
    SCORE,
    TOKENIZER,
    CrossEncoderMetadata,
    EncoderMetadata,
    RerankerFiles,
    model_file,
    write_card,
)
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.formats import DEFAULT_FORMAT
from qbe.models.gpu import FLOAT, IDS, LENGTHS, Graph, dequantize, mask_padding
from qbe.models.large import LARGE
from qbe.types import Paper
from qbe.util.files import sha256


def drawn_large(folder: Path) -> None:
    """An export in fp32 of the large encoder's graph, with the small one's tokenizer."""
    import onnx

    small = resolve_encoder()
    folder.mkdir(parents=True)
    shutil.copyfile(small.tokenizer, folder / TOKENIZER)
    model = onnx.load(str(Path(onnx_home(), GRAPH)))
    drawing = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.doc_string:  # a weight that is not in the graph
            values = drawing.standard_normal(tuple(tensor.dims), np.float32) * np.float32(0.02)
            if tensor.doc_string.endswith("LayerNorm.weight"):
                values[:] = 1
            tensor.raw_data = values.tobytes()
            tensor.ClearField("doc_string")
    path = folder / model_file("fp32")
    onnx.save(model, str(path))
    write_card(
        folder,
        EncoderMetadata(
            format=ENCODER.format,
            name=folder.name,
            source="drawn",
            weights_sha256="0" * 64,
            dimension=768,
            layers=12,
            max_tokens=512,
            encoder_format=DEFAULT_FORMAT,
            adapter=None,
            files={TOKENIZER: sha256(folder / TOKENIZER), path.name: sha256(path)},
            parity={"fp32": {}},
        ),
    )


def onnx_home() -> Path:
    """The folder of the large encoder in the package."""
    return resolve_encoder().folder.parent / LARGE.folder


def drawn_pairs(folder: Path, papers: Sequence[Paper]) -> tuple[RerankerFiles, RerankerFiles, RerankerFiles]:
    """A cross-encoder in int8, fp16 and fp32: the small encoder, and an output of its first token that is
    drawn, which scores ``papers`` by themselves with a deviation of one.
    """
    small = resolve_encoder()
    folder.mkdir(parents=True)
    shutil.copyfile(small.tokenizer, folder / TOKENIZER)
    drawing = np.random.default_rng(0)
    column = drawing.standard_normal((small.metadata.dimension, 1)).astype(np.float32)
    column /= max(1e-6, float(np.std(np.stack([v.whole for v in Encoder(small).encode(papers)]) @ column)))
    for precision in ("int8", "fp32"):
        graph = Graph(small.model)
        if precision == "fp32":
            dequantize(graph)
        _score(graph, column, masked=precision == "fp32")
        (folder / model_file(precision)).write_bytes(graph.serialized())
    files = {name: sha256(folder / name) for name in (TOKENIZER, model_file("int8"), model_file("fp32"))}
    card = CrossEncoderMetadata(
        name="drawn-pairs",
        source="drawn",
        weights_sha256="0" * 64,
        max_tokens=small.metadata.max_tokens,
        labels=1,
        token_types=False,
        files=files,
        parity={},
    )
    write_card(folder, card)
    int8, half, single = (RerankerFiles(folder, card, precision) for precision in ("int8", "fp16", "fp32"))
    return int8, half, single


def _score(graph: Graph, column: NDArray[np.float32], *, masked: bool) -> None:
    """Give a graph the inputs and the output of a pair cross-encoder."""
    from onnx import helper

    mask = PAIR_INPUTS[1]
    graph.add_input(mask, 7, ["batch", "tokens"])
    axis, zero = graph.constant("score/axis", [1], np.int64), graph.constant("score/first", 0, np.int64)
    lengths = [
        helper.make_node("ReduceSum", [mask, axis], ["score/tokens"], keepdims=0),
        helper.make_node("Cast", ["score/tokens"], [LENGTHS], to=6),
    ]
    if masked:
        mask_padding(graph)
        graph.inputs = [each for each in graph.inputs if each.name in (IDS, mask)]
        graph.nodes = [*lengths, *graph.nodes]
    weight, none = (
        graph.constant("score/weight", column, np.float32),
        graph.constant("score/none", 0, np.float32),
    )
    graph.nodes += [
        helper.make_node("Gather", ["last_hidden_state", zero], ["score/state"], axis=1),
        helper.make_node("MatMul", ["score/state", weight], ["score/column"]),
        helper.make_node("Squeeze", ["score/column", axis], ["score/plain"]),
    ]
    if not masked:  # a graph that has the input without a use of it
        graph.nodes += [
            lengths[0],
            helper.make_node("Cast", ["score/tokens"], ["score/counted"], to=FLOAT),
            helper.make_node("Mul", ["score/counted", none], ["score/nothing"]),
            helper.make_node("Add", ["score/plain", "score/nothing"], [SCORE]),
        ]
    else:
        graph.nodes.append(helper.make_node("Identity", ["score/plain"], [SCORE]))
    graph.set_outputs({SCORE: FLOAT})
