"""Fusion of several scores of the same candidates: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RRF_K = 60
"""The constant of reciprocal rank fusion (Cormack et al., 2009, section 2)."""

EQUAL_WEIGHTS: Mapping[str, float] = {"bm25": 1.0, "sentences": 1.0, "facet": 1.0, "whole": 1.0}
"""Weights of the fused first stage: all alike, so that no data chose them."""


def z_normalize(scores: Floats) -> Floats:
    """Scores (n,) with mean 0 and standard deviation 1; all 0 where they do not differ."""
    centred = scores - scores.mean() if len(scores) else scores
    deviation = centred.std() if len(scores) else 0.0
    if deviation <= 1e-9 * max(1.0, float(np.abs(scores).max(initial=0.0))):
        return np.zeros_like(centred)
    normalized: Floats = centred / deviation
    return normalized


def weighted_sum(components: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """The weighted mean of z-normalized components, each (n,); components without weight do not count."""
    used = [name for name in components if weights.get(name, 0.0)]
    total = sum(weights[name] for name in used)
    fused = sum(
        (weights[name] * z_normalize(components[name]) for name in used), np.zeros(_length(components))
    )
    return np.asarray(fused / total if total else fused, dtype=np.float64)


def reciprocal_rank(components: Mapping[str, Floats], weights: Mapping[str, float], k: int = RRF_K) -> Floats:
    """Reciprocal rank fusion (Cormack et al., 2009, section 2): the weighted sum of 1 / (k + rank).

    Equal scores share the best of their ranks, so that the order of candidates does not matter.
    """
    fused = np.zeros(_length(components))
    for name, scores in components.items():
        ascending = np.sort(-scores)
        ranks = np.searchsorted(ascending, -scores, side="left") + 1
        fused += weights.get(name, 0.0) / (k + ranks)
    return fused


def _length(components: Mapping[str, Floats]) -> int:
    return len(next(iter(components.values())))


FUSIONS = {"weighted": weighted_sum, "rrf": reciprocal_rank}
