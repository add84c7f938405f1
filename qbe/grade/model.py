"""The grade model on the disk: heads, and a card of what it was made from."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Heads that turn features into grades, by what is known (`qbe.grade.model.NAMES`) and facet.

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
    return _STORAGE.shipped


def write_model(folder: Path, model: GradeModel) -> None:
    """Write a model into a folder that exists, in single precision."""
    arrays: dict[str, Any] = {}
    for known, heads in model.heads.items():
        for facet, head in heads.items():
            arrays |= head_arrays(f"{known}.{facet}", head)
    described = {
        "encoder": dict(model.encoder),
        "reranker": dict(model.reranker),
        "features": _features(),
        "training": dict(model.training),
    }
    _STORAGE.write(folder, arrays, described)


def read_model(folder: Path) -> GradeModel:
    """The model in a folder; raises ModelError for one that is absent, damaged or of another format."""

    def model_of(card: Mapping[str, Any], arrays: Arrays) -> GradeModel:
        heads = {known: {facet: head_of(f"{known}.{facet}", arrays) for facet in Facet} for known in NAMES}
        return GradeModel(heads, card["encoder"], card["reranker"], card["training"])

    return _STORAGE.read(folder, _features(), model_of)


def _features() -> dict[str, list[str]]:
    return {known: list(names) for known, names in NAMES.items()}


WHOLE = "whole"
"""The cosine of the whole papers."""

VECTORS, RERANKED = "vectors", "reranked"
"""What is known of candidates: stored vectors alone, or the rerankers' scores too."""


def of_sentences(facet: Facet) -> str:
    """How well the paper's sentences of a facet match all sentences of a candidate (mean-max)."""
    return f"{facet}.sentences"


def of_facets(facet: Facet, other: Facet) -> str:
    """How well the paper's sentences of a facet match a candidate's of another or the same (mean-max)."""
    return f"{facet}.{other}"


def of_best(facet: Facet, other: Facet) -> str:
    """The best match of a sentence of each."""
    return f"{facet}.{other}.best"


def of_reranker(facet: Facet) -> str:
    """The score of the facet's reranker."""
    return f"{facet}.reranker"


_VECTORS = (
    WHOLE,
    *(of_sentences(facet) for facet in Facet),
    *(of_facets(facet, other) for facet in Facet for other in Facet),
    *(of_best(facet, other) for facet in Facet for other in Facet),
)

NAMES: Mapping[str, tuple[str, ...]] = {
    VECTORS: _VECTORS,
    RERANKED: (*_VECTORS, *(of_reranker(facet) for facet in Facet)),
}
"""The names of the features, by what is known."""


def columns(features: Mapping[str, Doubles], known: str, candidates: int) -> Doubles:
    """Features, each (candidates,), as a matrix (candidates, names); NaN where one is missing.

    >>> columns({"whole": np.array([0.5])}, "vectors", 1)[0, :3].tolist()
    [0.5, nan, nan]
    """
    missing = np.full(candidates, np.nan)
    return np.stack([features.get(name, missing) for name in NAMES[known]], axis=1)
