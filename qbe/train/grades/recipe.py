"""What the training of the grade model is configured with. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the heads are fitted.

    ``sampled`` lists of each file of pairs, drawn at random, are used. Grades are fitted by squared error,
    and with the weight ``differences`` those of two facets of a candidate, which rank it where one facet is
    liked and the other disliked.
    """

    sampled: int = 350
    epochs: int = 30
    batch: int = 256
    hidden: int = 16
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    differences: float = 3.0
