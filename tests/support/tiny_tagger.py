"""A facet tagger with fixed random weights, over the tiny encoder."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qbe.models.cards import ENCODER, HEAD, TaggerMetadata, read_card, write_card
from qbe.types import FacetProbabilities
from qbe.util.files import sha256

LAYERS = (1, 2)


def write_tagger(folder: Path, encoder: Path, seed: int = 0) -> None:
    """Write a card and a head: the sum of the layers' mean states of a sentence, times a matrix.

    The mean over the sentences is subtracted, so that labels vary within a paper.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trunk = read_card(encoder, ENCODER)
    labels = FacetProbabilities._fields
    random = np.random.default_rng(seed)
    weights = 10 * random.standard_normal((trunk.dimension, len(labels))).astype(np.float32)
    node = helper.make_node
    nodes = [
        node("Cast", ["spans"], ["inside"], to=TensorProto.FLOAT),
        node("MatMul", ["inside", "states"], ["sums"]),
        node("ReduceSum", ["inside", "last"], ["lengths"]),
        node("Div", ["sums", "lengths"], ["means"]),
        node("ReduceSum", ["means", "first"], ["pooled"]),
        node("ReduceMean", ["pooled"], ["mean"], axes=[1]),
        node("Sub", ["pooled", "mean"], ["centred"]),
        node("MatMul", ["centred", "weights"], ["scores"]),
    ]
    constants = {"weights": weights, "first": np.array([0]), "last": np.array([2])}
    graph = helper.make_graph(
        nodes,
        "head",
        [
            helper.make_tensor_value_info("states", TensorProto.FLOAT, ["layers", "tokens", trunk.dimension]),
            helper.make_tensor_value_info("spans", TensorProto.BOOL, [1, "sentences", "tokens"]),
        ],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, "sentences", len(labels)])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / HEAD)
    card = TaggerMetadata(
        name="tiny-tagger",
        labels=labels,
        trunk={"name": str(encoder), "weights_sha256": trunk.weights_sha256},
        layers=LAYERS,
        begin=random.standard_normal(len(labels)).tolist(),
        end=random.standard_normal(len(labels)).tolist(),
        transitions=random.standard_normal((len(labels), len(labels))).tolist(),
        files={HEAD: sha256(folder / HEAD)},
        training={},
    )
    write_card(folder, card)
