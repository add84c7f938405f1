"""Lists in which hits differ: places shared out among shapes, and maximal marginal relevance.

Pure functions on arrays; candidates are in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qbe.search.contracts import Scores


class Place(NamedTuple):
    """A place of a list: the ``candidate``, and the ``shape`` that it was chosen for, both as numbers; and
    the ``value`` by which it was.
    """

    candidate: int
    shape: int
    value: float


def varied(
    relevance: Scores,
    shares: Sequence[float] = (1.0,),
    similarity: Scores | None = None,
    diversity: float = 0.0,
) -> list[Place]:
    """All candidates in the order of their places, each once.

    ``relevance`` (shapes, candidates) is how well a candidate fits each shape, from 0 to 1. Each place goes
    to the shape with the highest quotient ``share / (2 * places + 1)``, the first of equals (Sainte-Lague, as
    in PM-1 of Dang and Croft, 2012), which takes the candidate with the highest
    ``(1 - diversity) * relevance - diversity * closest``, where ``closest`` is the largest ``similarity``
    (candidates, candidates) to one that has a place (maximal marginal relevance; Carbonell and Goldstein,
    1998); of equals the most relevant one, then the first.

    >>> relevance = np.array([[0.9, 0.8, 0.1, 0.2], [0.0, 0.1, 0.7, 0.6]])
    >>> [place[:2] for place in varied(relevance, [2, 1])]
    [(0, 0), (2, 1), (1, 0), (3, 0)]
    >>> alike = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> [place.candidate for place in varied(np.array([[1.0, 0.9, 0.6]]), [1], alike, diversity=0.5)]
    [0, 2, 1]
    """
    count = relevance.shape[1]
    weights, taken = np.array(shares, np.float64), np.zeros(len(shares))
    left, closest = np.ones(count, np.bool_), np.zeros(count)
    places = []
    for _ in range(count):
        shape = int((weights / (2 * taken + 1)).argmax())
        values = ((1 - diversity) * relevance[shape] - diversity * closest).round(6)
        best = left & (values == values[left].max())
        candidate = int(np.where(best, relevance[shape], -np.inf).argmax())
        places.append(Place(candidate, shape, float(values[candidate])))
        taken[shape] += 1
        left[candidate] = False
        if similarity is not None:
            closest = np.maximum(closest, similarity[candidate])
    return places


def scaled(scores: Scores) -> Scores:
    """Scores (n,) from 0, the lowest, to 1, the highest; all 1 where they are equal.

    >>> scaled(np.array([-1.0, 0.0, 3.0])).tolist()
    [0.0, 0.25, 1.0]
    """
    lowest, highest = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    if not lowest < highest:
        return np.ones(len(scores))
    result: Scores = (scores - lowest) / (highest - lowest)
    return result
