"""How fast a fit learns, and when it has learned enough."""

from __future__ import annotations

from collections.abc import Sequence


def lr_factor(step: int, total: int, warm_up: float = 0.1) -> float:
    """The part of the full learning rate at a step: up over a share of the steps, then down to nothing."""
    warm = max(1, int(total * warm_up))
    return min((step + 1) / warm, max(0.0, (total - step) / max(1, total - warm)))


def should_stop(figures: Sequence[float], patience: int) -> bool:
    """Whether the last ``patience`` figures, of which more is better, were no better than one before."""
    return bool(figures) and len(figures) - 1 - figures.index(max(figures)) >= patience
