"""The facet projections on the disk: matrices, weights, and a card of what they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import UsageError
from qbe.grade.head import MODELS, Arrays, Storage
from qbe.rerank.projections import TERMS, FacetProjection
from qbe.types import Facet

_STORAGE = Storage("projection", "facet-projections")
WEIGHTS, CARD = _STORAGE.weights, _STORAGE.card

ENCODERS = ("facet-encoder", "facet-encoder-large")
"""The encoders for whose vectors a model ships."""

SHIPPED = ("facet-projections", "facet-projections-large")
"""The folders of these models."""


@dataclass(frozen=True, slots=True)
class ProjectionModel:
    """A projection of stored vectors for each facet.

    ``encoder`` identifies the encoder whose vectors are projected; ``training`` says how the model was made.
    """

    projections: Mapping[Facet, FacetProjection]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]


def shipped_model(weights_sha256: str) -> Path | None:
    """The folder of the model that ships for the vectors of an encoder, None for an encoder that has none.

    ``weights_sha256`` is the digest of the encoder's weights, as an index and a model's card record it.

    >>> shipped_model("0" * 64) is None
    True
    """
    for name in SHIPPED:
        folder = MODELS / name
        if read_model(folder).encoder["weights_sha256"] == weights_sha256:
            return folder
    return None


def find_model(encoder: Mapping[str, Any], folder: Path | None = None) -> Path:
    """The folder of the model that reads the vectors of an ``encoder``: the one given, else one that ships.

    Raises UsageError where there is none, or where the one given reads the vectors of another encoder,
    ModelError for one that is absent or damaged.
    """
    model_folder = shipped_model(encoder["weights_sha256"]) if folder is None else folder
    if model_folder is None and encoder["name"] in ENCODERS:
        raise UsageError(
            f"expected vectors of this version's {encoder['name']} for `rerank` projections, found those of "
            f"other weights ({encoder['weights_sha256'][:12]}); build the index again, or choose another "
            "`rerank`"
        )
    if model_folder is None:
        raise UsageError(
            f"expected vectors of {' or '.join(ENCODERS)} for `rerank` projections, found those of "
            f"{encoder['name']}; choose another `rerank`, or train projections for them (qbe train "
            "facet-projections); qbe search takes their folder as `reranker`"
        )
    read = read_model(model_folder).encoder
    if read["weights_sha256"] != encoder["weights_sha256"]:
        raise UsageError(
            f"expected projections of the vectors of {encoder['name']}, found {model_folder}, which reads "
            f"those of {read['name']}; leave out `reranker`, or train it over an index of these vectors"
        )
    return model_folder


def write_model(folder: Path, model: ProjectionModel) -> None:
    """Write a model into a folder that exists; matrices in half precision, weights in single precision."""
    arrays: dict[str, Any] = {}
    for facet, projection in model.projections.items():
        arrays[f"{facet}.matrix"] = projection.matrix.astype(np.float16)
        arrays[f"{facet}.weights"] = projection.weights.astype(np.float32)
    described = {"encoder": dict(model.encoder), "features": list(TERMS), "training": dict(model.training)}
    _STORAGE.write(folder, arrays, described)


def read_model(folder: Path) -> ProjectionModel:
    """The model in a folder; raises ModelError for one that is absent, damaged or of another format."""

    def model_of(card: Mapping[str, Any], arrays: Arrays) -> ProjectionModel:
        projections = {
            facet: FacetProjection(arrays[f"{facet}.matrix"], arrays[f"{facet}.weights"]) for facet in Facet
        }
        return ProjectionModel(projections, card["encoder"], card["training"])

    return _STORAGE.read(folder, list(TERMS), model_of)
