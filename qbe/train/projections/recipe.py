"""What the training of the facet projections is configured with. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the projections are fitted.

    ``queries`` lists a step; the matrices begin as the identity and are held near it, by the squared
    differences of their numbers times ``anchor``; all learning rates rise over the first tenth of the steps
    and fall to 0 in the end. A running mean of the weights (``memory``) is measured after each epoch.
    """

    epochs: int = 2
    queries: int = 4
    learning_rate: float = 3e-4
    weight_rate: float = 2e-2
    anchor: float = 1e-3
    memory: float = 0.98
    clip: float = 1.0
    start_weight: float = 4.0
