"""The grade model: a head whose scores are grades by facet and chances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.models.heads import Head, Storage, head_arrays, head_of
from qbe.query import HIGHEST
from qbe.types import Facet

_STORAGE = Storage("grade", "grades")
WEIGHTS, CARD = _STORAGE.weights, _STORAGE.card
shipped_model = _STORAGE.shipped_for

Doubles = NDArray[np.float64]


class Estimates(NamedTuple):
    """Grades (candidates, 3) by facet, 0 to 3 or a little beyond; chances of SIMILAR_FROM and OTHER_TO."""

    grades: Doubles
    similar: Doubles
    other: Doubles


OUTPUTS = 3 * len(Facet)
"""A head's scores: the grades, and the log odds of being similar and of being another one, by facet."""


@dataclass(frozen=True, slots=True)
class GradeModel:
    """A head of OUTPUTS scores that turns features of an ``encoder``'s vectors into estimates."""

    head: Head
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def estimates(self, features: Doubles) -> Estimates:
        """Estimate from features (candidates, F), rounded to six places: any order of summation is equal."""
        grades, *log_odds = np.split(self.head.scores(features), 3, axis=1)
        similar, other = (1 / (1 + np.exp(-np.clip(part, -50, 50))) for part in log_odds)
        return Estimates(grades.round(6), similar.round(6), other.round(6))


def on_scale(grades: Doubles) -> Doubles:
    return np.clip(grades, 0.0, HIGHEST)


def write_model(folder: Path, model: GradeModel, features: Sequence[str]) -> None:
    described = {"encoder": dict(model.encoder), "features": list(features), "training": dict(model.training)}
    _STORAGE.write(folder, head_arrays("head", model.head), described)


def read_model(folder: Path, features: Sequence[str]) -> GradeModel:
    """Read a model; raises ModelError for one that is absent, damaged or of other ``features``."""
    return _STORAGE.read(
        folder,
        list(features),
        lambda card, arrays: GradeModel(head_of("head", arrays), card["encoder"], card["training"]),
    )
