"""The grade model on the disk: heads, and a card of what it was made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.grade.head import Arrays, Head, Storage, head_arrays, head_of
from qbe.types import Facet

_STORAGE = Storage("grade", "grades")
WEIGHTS, CARD = _STORAGE.weights, _STORAGE.card

HIGHEST = 3.0

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GradeModel:
    """Heads that turn features into grades, by facet.

    ``encoder`` identifies the encoder whose vectors the features compare; ``training`` says how the model was
    made.
    """

    heads: Mapping[Facet, Head]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def grades(self, features: Doubles) -> Doubles:
        """Estimated grades (candidates, 3) by background, method and result, on the scale from 0 (unrelated)
        to 3 (near identical), out of features (candidates, F). Estimates may lie a little outside: `on_scale`
        puts them on it; as they are they still tell candidates apart at its ends. They are rounded to six
        places, so that none depends on the order in which products are summed.
        """
        return np.stack([self.heads[facet].scores(features) for facet in Facet], axis=1).round(6)


def on_scale(grades: Doubles) -> Doubles:
    """Estimated grades, none below 0 or above 3.

    >>> on_scale(np.array([-0.25, 1.5, 3.5])).tolist()
    [0.0, 1.5, 3.0]
    """
    return np.clip(grades, 0.0, HIGHEST)


def default_model() -> Path:
    """The folder of the model that ships.

    >>> default_model().name
    'grades'
    """
    return _STORAGE.shipped


def write_model(folder: Path, model: GradeModel, features: Sequence[str]) -> None:
    """Write a model of these features into a folder that exists, in single precision."""
    arrays: dict[str, Any] = {}
    for facet, head in model.heads.items():
        arrays |= head_arrays(facet.value, head)
    described = {
        "encoder": dict(model.encoder),
        "features": list(features),
        "training": dict(model.training),
    }
    _STORAGE.write(folder, arrays, described)


def read_model(folder: Path, features: Sequence[str]) -> GradeModel:
    """The model of these features in a folder; raises ModelError for one that is absent, damaged or of other
    features.
    """

    def model_of(card: Mapping[str, Any], arrays: Arrays) -> GradeModel:
        heads = {facet: head_of(facet.value, arrays) for facet in Facet}
        return GradeModel(heads, card["encoder"], card["training"])

    return _STORAGE.read(folder, list(features), model_of)


def grades_vectors_of(encoder: Mapping[str, Any]) -> bool:
    """Whether the model that ships reads the vectors of an ``encoder``, as the manifest of an index names it.

    >>> grades_vectors_of({"weights_sha256": "0" * 64})
    False
    """
    card = json.loads((default_model() / CARD).read_text(encoding="utf-8"))
    same: bool = card["encoder"]["weights_sha256"] == encoder["weights_sha256"]
    return same
