"""The citation model on the disk: matrices, heads, and a card of what it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbe.cite.projected import Projection
from qbe.cite.scoring import FEATURE_SETS
from qbe.models.heads import Arrays, Head, Storage, head_arrays, head_of

_STORAGE = Storage("citation", "citation")
_FEATURES = {each.key: list(each.names) for each in FEATURE_SETS}


@dataclass(frozen=True, slots=True)
class CitationModel:
    """Hold a projection of the vectors of ``encoder``, and a head for each `FeatureSet` by its ``key``."""

    projection: Projection
    heads: Mapping[str, Head]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def reads(self, encoder: Mapping[str, Any]) -> bool:
        """Tell if it reads the vectors of an encoder, as a manifest identifies it."""
        return bool(encoder["weights_sha256"] == self.encoder["weights_sha256"])


def default_model(encoder: Mapping[str, Any]) -> Path:
    """Return the folder of the model shipped for the vectors of an encoder, else for the default one."""
    return _STORAGE.shipped_for(encoder) or _STORAGE.shipped


def write_model(folder: Path, model: CitationModel) -> None:
    """Write a model into an existing folder: matrices in half, heads in single precision."""
    arrays: dict[str, Any] = {
        "sentences": model.projection.sentences.astype(np.float16),
        "whole": model.projection.whole.astype(np.float16),
        "weights": model.projection.weights.astype(np.float32),
    }
    for key, head in model.heads.items():
        arrays |= head_arrays(key, head)
    _STORAGE.write(folder, arrays, _FEATURES, model)


def read_model(folder: Path) -> CitationModel:
    """Read a model; raises ModelError for one that is absent, damaged or of another format."""

    def model_of(arrays: Arrays, *card: Any) -> CitationModel:
        projection = Projection(*(arrays[name] for name in Projection._fields))
        heads = {each.key: head_of(each.key, arrays) for each in FEATURE_SETS}
        return CitationModel(projection, heads, *card)

    return _STORAGE.read(folder, _FEATURES, model_of)
