"""The grade model: a head whose scores are grades by facet and chances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.models.heads import Arrays, Head, Storage, head_arrays, head_of
from qbe.query import HIGHEST
from qbe.types import Facet

_STORAGE = Storage("grade", "grades")
WEIGHTS, CARD = _STORAGE.weights, _STORAGE.card
shipped_model = _STORAGE.shipped_for

Doubles = NDArray[np.float64]


class Estimates(NamedTuple):
    """Estimates of candidates by background, method and result: ``grades`` (candidates, 3) from 0
    (unrelated) to 3 (near identical), and how likely the true grade is at least SIMILAR_FROM (``similar``) or
    at most OTHER_TO (``other``; both of `qbe.query`), each (candidates, 3), from 0 to 1.

    Grades may lie a little outside their scale: `on_scale` puts them on it; as they are they still tell
    candidates apart at its ends.
    """

    grades: Doubles
    similar: Doubles
    other: Doubles


OUTPUTS = 3 * len(Facet)
"""A head's scores: the grades, and the log odds of being similar and of being another one, by facet."""


@dataclass(frozen=True, slots=True)
class GradeModel:
    """A head of OUTPUTS scores that turns features into estimates.

    ``encoder`` identifies the encoder whose vectors the features compare.
    """

    head: Head
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def estimates(self, features: Doubles) -> Estimates:
        """Estimate from features (candidates, F); rounded to six places, so that the order of summation does
        not matter.
        """
        grades, *log_odds = np.split(self.head.scores(features), 3, axis=1)
        similar, other = (1 / (1 + np.exp(-np.clip(part, -50, 50))) for part in log_odds)
        return Estimates(grades.round(6), similar.round(6), other.round(6))


def on_scale(grades: Doubles) -> Doubles:
    """Clip estimated grades to the scale from 0 to 3."""
    return np.clip(grades, 0.0, HIGHEST)


def write_model(folder: Path, model: GradeModel, features: Sequence[str]) -> None:
    """Write a model of these features into a folder that exists, in single precision."""
    described = {"encoder": dict(model.encoder), "features": list(features), "training": dict(model.training)}
    _STORAGE.write(folder, head_arrays("head", model.head), described)


def read_model(folder: Path, features: Sequence[str]) -> GradeModel:
    """Read a model; raises ModelError for one that is absent, damaged or of other ``features``."""

    def model_of(card: Mapping[str, Any], arrays: Arrays) -> GradeModel:
        return GradeModel(head_of("head", arrays), card["encoder"], card["training"])

    return _STORAGE.read(folder, list(features), model_of)
