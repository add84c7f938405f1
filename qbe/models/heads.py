"""Small neural networks over features of candidates, how models of such networks are stored, and grades."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models import HEADERS, reading
from qbe.models.cards import PACKAGE as MODELS
from qbe.models.cards import verify_digest
from qbe.types import Facet
from qbe.util.files import atomic_file, sha256, write_text

T = TypeVar("T")
Doubles = NDArray[np.float64]
Arrays = Mapping[str, Doubles]

FORMAT = 1
OUTERMOST = 5.0  # of 100 pairs of dev-2 two have a feature that is further out


class Head(NamedTuple):
    """A network of one hidden layer (``tanh``), of F features and H hidden units; all float64.

    Features are standardized by ``mean`` and ``scale`` (F,); an unknown one (NaN) counts as the mean.
    ``hidden`` (F, H), ``bias`` (H,), ``direct`` (F,) or (F, K) and ``out`` (H,) or (H, K) are the weights of
    one score or K.

    >>> unit = np.ones(1)
    >>> head = Head(0 * unit, 2 * unit, np.ones((1, 1)), 0 * unit, 3 * unit, 0 * unit)
    >>> head.scores(np.array([[4.0], [np.nan]])).tolist()
    [6.0, 0.0]
    """

    mean: Doubles
    scale: Doubles
    hidden: Doubles
    bias: Doubles
    direct: Doubles
    out: Doubles

    def scores(self, features: Doubles) -> Doubles:
        """Score candidates, (candidates,) or (candidates, K), by features (candidates, F)."""
        inputs = np.nan_to_num((features - self.mean) / self.scale, nan=0.0)
        return inputs @ self.direct + np.tanh(inputs @ self.hidden + self.bias) @ self.out


def mean_head(heads: Sequence[Head]) -> Head:
    """Combine heads over the same features to one whose scores are the means of theirs."""
    return Head(
        heads[0].mean,
        heads[0].scale,
        np.concatenate([head.hidden for head in heads], axis=1),
        np.concatenate([head.bias for head in heads]),
        np.mean([head.direct for head in heads], axis=0),
        np.concatenate([head.out for head in heads]) / len(heads),
    )


class Storage:
    """How a kind of model is stored: its name in messages, and the ``stem`` of files and of `qbe train`."""

    def __init__(self, kind: str, stem: str) -> None:
        self.kind, self.stem = kind, stem
        self.weights, self.card, self.shipped = f"{stem}.npz", f"{stem}.json", MODELS / stem

    def shipped_for(self, encoder: Mapping[str, Any]) -> Path | None:
        """Return the folder of the model that ships for an index's ``encoder`` (its identity), or None."""
        for card in sorted(MODELS.glob(f"{self.stem}*/{self.card}")):
            read = json.loads(card.read_text(encoding="utf-8"))["encoder"]
            if read["weights_sha256"] == encoder["weights_sha256"]:
                return card.parent
        return None

    def write(self, folder: Path, arrays: Mapping[str, NDArray[Any]], features: Any, model: Any) -> None:
        with atomic_file(folder / self.weights) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        card: dict[str, Any] = {"format": FORMAT, "files": {self.weights: sha256(folder / self.weights)}}
        card |= {"encoder": dict(model.encoder), "features": features, "training": dict(model.training)}
        write_text(folder / self.card, json.dumps(card, indent=1) + "\n")

    def read(self, folder: Path, features: Any, model_of: Callable[..., T]) -> T:
        """Read a model; raises ModelError for one that is absent, damaged, or of other format or features."""
        train = f"qbe train {self.stem}"
        expected = f"a {self.kind} model ({self.card}, {self.weights})"
        with reading(folder, expected, f"give its folder, or train one with {train}"):
            card = json.loads((folder / self.card).read_text(encoding="utf-8"))
            if card["format"] != FORMAT or card["features"] != features:
                expected = f"expected a {self.kind} model of format {FORMAT}"
                raise ModelError(f"{folder}: {expected}, found another; train it again with {train}")
            verify_digest(folder / self.weights, card["files"][self.weights], "fetch it again")
            with HEADERS, np.load(folder / self.weights) as stored:
                arrays = {name: stored[name].astype(np.float64) for name in stored.files}
                return model_of(arrays, card["encoder"], card["training"])


def head_arrays(name: str, head: Head) -> dict[str, NDArray[np.float32]]:
    return {f"{name}.{part}": array.astype(np.float32) for part, array in head._asdict().items()}


def head_of(name: str, arrays: Arrays) -> Head:
    return Head(*(arrays[f"{name}.{part}"] for part in Head._fields))


# The grade model.

GRADES = Storage("grade", "grades")
shipped_model = GRADES.shipped_for
OUTPUTS = 3 * len(Facet)
"""A grade model's scores: grades, and the log odds of being similar and of being another one, by facet."""


class Estimates(NamedTuple):
    """Grades (candidates, 3) by facet, 0 to 3 or a little beyond; chances of SIMILAR_FROM and OTHER_TO."""

    grades: Doubles
    similar: Doubles
    other: Doubles


@dataclass(frozen=True, slots=True)
class GradeModel:
    """A head of OUTPUTS scores that turns features of an ``encoder``'s vectors into estimates."""

    head: Head
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def estimates(self, features: Doubles, *, cut_off: bool = False) -> Estimates:
        """Estimate from features (candidates, F), rounded to six places: any order of summation is equal.

        ``cut_off`` brings those that lie far from all of the training to OUTERMOST deviations.
        """
        if cut_off:
            most = OUTERMOST * self.head.scale
            features = np.clip(features, self.head.mean - most, self.head.mean + most)
        grades, *log_odds = np.split(self.head.scores(features), 3, axis=1)
        similar, other = (1 / (1 + np.exp(-np.clip(part, -50, 50))) for part in log_odds)
        return Estimates(grades.round(6), similar.round(6), other.round(6))


def write_model(folder: Path, model: GradeModel, features: Sequence[str]) -> None:
    GRADES.write(folder, head_arrays("head", model.head), list(features), model)


def read_model(folder: Path, features: Sequence[str]) -> GradeModel:
    """Read a model; raises ModelError for one that is absent, damaged or of other ``features``."""
    return GRADES.read(folder, list(features), lambda arrays, *of: GradeModel(head_of("head", arrays), *of))
