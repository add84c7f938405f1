"""What distillation is configured with. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from qbe.errors import UsageError


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the facet rerankers are distilled; their card says which data its choices were made on.

    The ``joint`` upper layers are trained; of a paper the first ``max_tokens`` are read. Each of the
    ``steps`` has ``anchors`` papers and with each of them ``others`` papers, drawn from the ``neighbours``
    that are most similar to it by one facet of the teacher. All papers of a step are scored for all others.
    The layers learn at ``learning_rate`` (with ``weight_decay``), the facets' projections and token weights
    at ``head_rate``, the weights of similarities at ``weight_rate``; rates rise over a share ``warm_up`` of
    the steps, and then fall to 0. Gradients are clipped to a norm of ``clip``; the result is an exponential
    moving average of the weights with ``ema_decay``. ``relational`` is the weight of the loss of cosines
    (`qbe.train.distillation.loss.relational`). Raises UsageError where there is no step, or fewer than three
    papers in a step.

    >>> Recipe(steps=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `steps` of at least 1, found 0
    """

    steps: int = 650
    joint: int = 3
    max_tokens: int = 384
    anchors: int = 2
    others: int = 11
    neighbours: int = 64
    learning_rate: float = 8e-5
    head_rate: float = 1e-4
    weight_rate: float = 1e-2
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.05
    ema_decay: float = 0.99
    relational: float = 5.0

    def __post_init__(self) -> None:
        """Raise UsageError where there is nothing to learn from."""
        if self.steps < 1:
            raise UsageError(f"expected `steps` of at least 1, found {self.steps}")
        if self.anchors < 1 or self.others < 1 or self.anchors * (1 + self.others) < 3:
            raise UsageError(
                "expected at least three papers in a step, an anchor and others among them, found "
                f"{self.anchors} anchors with {self.others} others each"
            )
