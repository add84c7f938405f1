"""The citation model on the disk: matrices, heads, and a card of what it was made from."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbe.cite.features import EVERY_KNOWN, Known
from qbe.cite.late_interaction import Projection
from qbe.errors import ModelError
from qbe.files import atomic_file, sha256, write_text
from qbe.grade.head import Head

CITATION = "citation"
"""The model that ships, a folder in `qbe.models`."""

WEIGHTS = "citation.npz"
CARD = "citation.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class CitationModel:
    """A projection of stored vectors and the heads that judge candidates.

    ``heads`` has one for everything that may be known (`qbe.cite.features.Known`), by its ``key``.
    ``encoder`` identifies the encoder whose vectors are projected; ``training`` says how the model was made.
    """

    projection: Projection
    heads: Mapping[str, Head]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def head(self, known: Known) -> Head:
        """The head for what is known."""
        return self.heads[known.key]


def default_model() -> Path:
    """The folder of the model that ships.

    >>> default_model().name
    'citation'
    """
    return Path(__file__).parent.parent / "models" / CITATION


def write_model(folder: Path, model: CitationModel) -> None:
    """Write a model into a folder that exists; matrices in half precision, heads in single precision."""
    arrays: dict[str, Any] = {
        "sentences": model.projection.sentences.astype(np.float16),
        "whole": model.projection.whole.astype(np.float16),
        "weights": model.projection.weights.astype(np.float32),
    }
    for key, head in model.heads.items():
        arrays |= {f"{key}.{name}": array.astype(np.float32) for name, array in head._asdict().items()}
    with atomic_file(folder / WEIGHTS) as stream:
        np.savez(stream, **arrays)
    card = {
        "format": FORMAT,
        "files": {WEIGHTS: sha256(folder / WEIGHTS)},
        "encoder": dict(model.encoder),
        "features": {known.key: list(known.names) for known in EVERY_KNOWN},
        "training": dict(model.training),
    }
    write_text(folder / CARD, json.dumps(card, indent=1) + "\n")


def read_model(folder: Path) -> CitationModel:
    """The model in a folder; raises ModelError for one that is absent, damaged or of another format."""
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        features = {known.key: list(known.names) for known in EVERY_KNOWN}
        if card["format"] != FORMAT or card["features"] != features:
            raise ModelError(
                f"{folder}: expected a citation model of format {FORMAT}, found another; train it again with "
                "qbe train citation"
            )
        if sha256(folder / WEIGHTS) != card["files"][WEIGHTS]:
            raise ModelError(
                f"{folder / WEIGHTS}: expected the SHA-256 of its card, found another; fetch it again"
            )
        with np.load(folder / WEIGHTS) as stored:
            arrays = {name: stored[name].astype(np.float64) for name in stored.files}
        projection = Projection(*(arrays[name] for name in Projection._fields))
        heads = {
            known.key: Head(*(arrays[f"{known.key}.{name}"] for name in Head._fields))
            for known in EVERY_KNOWN
        }
        return CitationModel(projection, heads, card["encoder"], card["training"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{folder}: expected a citation model ({CARD}, {WEIGHTS}), found: {error}; give its folder, or "
            "train one with qbe train citation"
        ) from error
