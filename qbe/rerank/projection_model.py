"""The facet projections on the disk: matrices, weights, and a card of what they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbe.grade.storage import Arrays, Storage
from qbe.rerank.projections import TERMS, FacetProjection
from qbe.types import Facet

_STORAGE = Storage("projection", "facet-projections")
WEIGHTS, CARD = _STORAGE.weights, _STORAGE.card


@dataclass(frozen=True, slots=True)
class ProjectionModel:
    """A projection of stored vectors for each facet.

    ``encoder`` identifies the encoder whose vectors are projected; ``training`` says how the model was made.
    """

    projections: Mapping[Facet, FacetProjection]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]


def default_model() -> Path:
    """The folder of the model that ships.

    >>> default_model().name
    'facet-projections'
    """
    return _STORAGE.shipped


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
