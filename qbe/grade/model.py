"""The grade model on the disk: heads, and a card of what it was made from."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.files import atomic_file, sha256, write_text
from qbe.grade.features import NAMES, columns
from qbe.grade.head import Head
from qbe.types import Facet

GRADES = "grades"
"""The model that ships, a folder in `qbe.models`."""

WEIGHTS = "grades.npz"
CARD = "grades.json"
FORMAT = 1
HIGHEST = 3.0

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GradeModel:
    """Heads that turn features into grades, by what is known (`qbe.grade.features.NAMES`) and facet.

    ``encoder`` and ``reranker`` identify the models whose scores are read (the latter by the digests of its
    files); ``training`` says how the model was made.
    """

    heads: Mapping[str, Mapping[Facet, Head]]
    encoder: Mapping[str, Any]
    reranker: Mapping[str, Any]
    training: Mapping[str, Any]

    def grades(self, features: Mapping[str, Doubles], known: str, candidates: int) -> Doubles:
        """Estimated grades (candidates, 3) by background, method and result, on the scale from 0 (unrelated)
        to 3 (near identical), out of features (candidates,) by name. Estimates may lie a little outside:
        `on_scale` puts them on it; as they are they still tell candidates apart at its ends.
        """
        matrix = columns(features, known, candidates)
        return np.stack([self.heads[known][facet].scores(matrix) for facet in Facet], axis=1)


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
    return Path(__file__).parent.parent / "models" / GRADES


def write_model(folder: Path, model: GradeModel) -> None:
    """Write a model into a folder that exists, in single precision."""
    arrays: dict[str, Any] = {
        f"{known}.{facet}.{name}": array.astype(np.float32)
        for known, heads in model.heads.items()
        for facet, head in heads.items()
        for name, array in head._asdict().items()
    }
    with atomic_file(folder / WEIGHTS) as stream:
        np.savez(stream, **arrays)
    card = {
        "format": FORMAT,
        "files": {WEIGHTS: sha256(folder / WEIGHTS)},
        "encoder": dict(model.encoder),
        "reranker": dict(model.reranker),
        "features": {known: list(names) for known, names in NAMES.items()},
        "training": dict(model.training),
    }
    write_text(folder / CARD, json.dumps(card, indent=1) + "\n")


def read_model(folder: Path) -> GradeModel:
    """The model in a folder; raises ModelError for one that is absent, damaged or of another format."""
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        features = {known: list(names) for known, names in NAMES.items()}
        if card["format"] != FORMAT or card["features"] != features:
            raise ModelError(
                f"{folder}: expected a grade model of format {FORMAT}, found another; train it again with "
                "qbe train grades"
            )
        if sha256(folder / WEIGHTS) != card["files"][WEIGHTS]:
            raise ModelError(
                f"{folder / WEIGHTS}: expected the SHA-256 of its card, found another; fetch it again"
            )
        with np.load(folder / WEIGHTS) as stored:
            arrays = {name: stored[name].astype(np.float64) for name in stored.files}
        heads = {
            known: {
                facet: Head(*(arrays[f"{known}.{facet}.{name}"] for name in Head._fields)) for facet in Facet
            }
            for known in NAMES
        }
        return GradeModel(heads, card["encoder"], card["reranker"], card["training"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{folder}: expected a grade model ({CARD}, {WEIGHTS}), found: {error}; give its folder, or "
            "train one with qbe train grades"
        ) from error
