"""The weights of exported facet rerankers, to continue training where only their ONNX files are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qbe.errors import ModelError
from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import RERANKER_CARD, TRUNK, FacetRerankersMetadata, RerankerFiles
from qbe.train.reranker.network import FACETS, Network

Floats = NDArray[np.float32]

CLIP = 0.97
"""The share of a row's largest magnitude to which weights are cut, to leave the grid of an earlier export."""

_PRODUCTS = ("heads", "out", "up", "down")
"""The matrix products of a layer, in the order of the exported graph."""


def exported_weights(files: RerankerFiles, network: Network) -> dict[str, Tensor]:
    """The trainable parameters of a ``network``, by name, as int8 facet rerankers hold them.

    Products were stored as integers with a scale a column: the weights differ from those that were exported
    by half a step of the integers at most. The lower layers, which were not trained, are the network's own.
    Raises ModelError for a pair cross-encoder, and for rerankers of another architecture.

    >>> from qbe.models.registry import DEFAULT_RERANKER
    >>> from qbe.models.reranker_files import resolve_reranker
    >>> from qbe.models.sources import packaged_weights
    >>> from qbe.models.registry import BASE_ENCODER, ENCODERS
    >>> network = Network(packaged_weights(ENCODERS[BASE_ENCODER]))
    >>> weights = exported_weights(resolve_reranker(DEFAULT_RERANKER, "int8"), network)
    >>> weights["projections"].shape, weights["weights"].shape
    (torch.Size([3, 384, 384]), torch.Size([3, 5]))
    """
    heads = _metadata(files).heads
    weights: dict[str, Tensor] = {}
    projections, token_weights = [], []
    for facet in FACETS:
        files.verify(facet.value)
        products, vectors = _constants(files, facet.value)
        layers = network.shape.layers * len(_PRODUCTS)
        if len(products) != layers + 1:
            raise ModelError(
                f"{files.model(facet.value)}: expected {layers + 1} products in int8, found {len(products)}; "
                "give rerankers that were trained on the same base"
            )
        projections.append(products[-1][0].T)
        token_weights.append(vectors["token_weights"])
        if not weights:
            weights = dict(_upper_layers(products, vectors, network))
    weights["projections"] = _tensor(np.stack(projections))
    weights["token_weights"] = _tensor(np.stack(token_weights))
    weights["weights"] = torch.tensor([heads[facet.value] for facet in FACETS])
    return weights


def off_grid(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights whose products are cut, in each row, to CLIP of the largest magnitude.

    Weights that started from an int8 export lie on its grid of integers times a scale a row, and what
    training changes is mostly less than half a step: the next export would round it away (kept: 3 to 14 % of
    it). A scale is the largest magnitude over 127: with another one the grid is another, and rounding keeps
    changes on average.

    >>> off_grid({"upper.0.up_weight": torch.tensor([[1.0, -0.5]]), "weights": torch.ones(1, 2)})
    {'upper.0.up_weight': tensor([[ 0.9700, -0.5000]]), 'weights': tensor([[1., 1.]])}
    """

    def cut(part: Tensor) -> Tensor:
        largest = CLIP * part.abs().amax(-1, keepdim=True)
        return part.clamp(-largest, largest)

    products = tuple(f"{name}_weight" for name in _PRODUCTS)
    return {name: cut(part) if name.endswith(products) else part for name, part in weights.items()}


def is_exported(start: str | Path) -> bool:
    """Whether that is the name or the folder of trained rerankers, not the work folder of a training.

    >>> is_exported("facet-rerankers"), is_exported(Path("work"))
    (True, False)
    """
    return start == DEFAULT_RERANKER or (Path(start) / RERANKER_CARD).exists()


def exported_provenance(files: RerankerFiles) -> dict[str, Any]:
    """What facet rerankers in int8 were made from, as `qbe.train.artifacts.read_provenance` gives it, and
    the SHA-256 of their ``weights``.

    >>> from qbe.models.reranker_files import resolve_reranker
    >>> sorted(exported_provenance(resolve_reranker("facet-rerankers", "int8")))
    ['data', 'recipe', 'start', 'teacher', 'weights']
    """
    metadata = _metadata(files)
    training = metadata.training
    keys = ("recipe", "data", "leave_out", "encoder", "tagger", "teacher", "start")
    return {key: training[key] for key in keys if key in training} | {"weights": metadata.files[TRUNK]}


def _metadata(files: RerankerFiles) -> FacetRerankersMetadata:
    if not isinstance(files.metadata, FacetRerankersMetadata):
        raise ModelError(
            f"{files.folder}: expected facet rerankers, found a pair cross-encoder; give a folder that "
            "`qbe train reranker` wrote"
        )
    return files.metadata


def _upper_layers(
    products: Sequence[tuple[Floats, Floats]], vectors: dict[str, Floats], network: Network
) -> Iterator[tuple[str, Tensor]]:
    first = network.shape.layers - network.joint
    for number in range(network.joint):
        for place, name in enumerate(_PRODUCTS):
            weight, bias = products[(first + number) * len(_PRODUCTS) + place]
            yield f"upper.{number}.{name}_weight", _tensor(weight.T)
            yield f"upper.{number}.{name}_bias", _tensor(bias)
        for name in ("norm_weight", "norm_bias", "last_weight", "last_bias"):
            yield f"upper.{number}.{name}", _tensor(vectors[f"network.upper.{number}.{name}"])
        yield f"upper.{number}.gate", _tensor(vectors[f"gate.{number}"])


def _constants(files: RerankerFiles, facet: str) -> tuple[list[tuple[Floats, Floats]], dict[str, Floats]]:
    """The products (weight (in, out), bias (out,)) of a facet's graph in its order, and its other constants
    by name; the last product is the facet's projection, whose bias is empty.
    """
    import onnx
    from onnx import numpy_helper

    model: Any = onnx.load(str(files.model(facet)))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    products, biases = [], []
    others: dict[str, Floats] = {}
    gates = 0
    for node in model.graph.node:
        names = [name for name in node.input if name in constants and constants[name].ndim]
        if node.op_type == "MatMulInteger":
            name = names[0].removesuffix("_quantized")
            zero = constants[f"{name}_zero_point"].astype(np.float32)
            products.append((constants[names[0]].astype(np.float32) - zero) * constants[f"{name}_scale"])
        elif node.op_type == "Add" and names and constants[names[0]].ndim == 1 and products:
            biases.append(constants[names[0]])
        elif node.op_type == "LayerNormalization":
            others |= {name: constants[name] for name in names}
        elif node.op_type == "Mul" and names and constants[names[0]].ndim == 3:
            others[f"gate.{gates}"] = constants[names[0]]
            gates += 1
        elif node.op_type == "Mul" and names and not names[0].endswith("_scale"):
            others["token_weights"] = constants[names[0]]
    none = np.zeros(0, np.float32)
    pairs = [(weight, bias) for weight, bias in zip(products, [*biases, none], strict=True)]
    return pairs, others


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.tensor(np.ascontiguousarray(values, dtype=np.float32))
