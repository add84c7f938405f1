"""Figures of grades on graded pairs: how far they are off, and how well their differences rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.evaluate.exploration import SCOPES, ndcg
from qbe.grade.model import on_scale
from qbe.types import Facet

Doubles = NDArray[np.float64]

UNLIKE_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
"""Weights of the disliked facet that are tried; 0 is the liked facet alone."""

_PLACES = {facet: place for place, facet in enumerate(Facet)}


class GradeFigures(NamedTuple):
    """Root mean squared errors of the grades by facet, and nDCG@10 of exploration
    (`qbe.evaluate.exploration`) by scope and weight of the disliked facet.
    """

    errors: Mapping[str, float]
    ndcg: Mapping[str, Mapping[float, float]]


def grade_figures(lists: Sequence[tuple[Doubles, Doubles]]) -> GradeFigures:
    """The figures of lists, each of predicted grades (papers, 3) and grades (papers, 3).

    >>> lists = [(np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 0.0]]), np.array([[3.0, 3.0, 0.0], [2.0, 0.0, 0.0]]))]
    >>> figures = grade_figures(lists)
    >>> figures.errors["background"], round(figures.errors["method"], 3)
    (0.0, 1.414)
    >>> round(figures.ndcg["background-not-method"][0.0], 3)
    0.631
    """
    predicted, grades = (np.concatenate(column) for column in zip(*lists, strict=True))
    errors = np.sqrt(((on_scale(predicted) - grades) ** 2).mean(axis=0))
    by_scope = {}
    for liked, disliked in SCOPES:
        a, b = _PLACES[liked], _PLACES[disliked]
        gains = [np.maximum(truth[:, a] - truth[:, b], 0.0) for _, truth in lists]
        places = [place for place, gain in enumerate(gains) if gain.max(initial=0.0) > 0]
        if places:
            by_scope[f"{liked}-not-{disliked}"] = {
                weight: float(
                    np.mean(
                        [
                            _ranked(
                                lists[place][0][:, a] - weight * on_scale(lists[place][0][:, b]), gains[place]
                            )
                            for place in places
                        ]
                    )
                )
                for weight in UNLIKE_WEIGHTS
            }
    return GradeFigures({str(facet): float(errors[place]) for facet, place in _PLACES.items()}, by_scope)


def _ranked(scores: Doubles, gains: Doubles) -> float:
    order = np.argsort(-scores, kind="stable")
    return ndcg(gains[order].tolist(), gains.tolist())
