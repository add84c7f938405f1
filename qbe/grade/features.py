"""What a candidate is graded by: similarities to a paper, facet by facet, each a column of numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from qbe.types import Facet

Doubles = NDArray[np.float64]

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
