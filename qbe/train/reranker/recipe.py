"""What the training of the facet rerankers is configured with. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from qbe.errors import UsageError

PAIRWISE = ("logistic", "margin")
"""The losses over pairs of candidates, which can weigh crossed pairs up."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the network is fitted.

    AdamW; the learning rate rises linearly over a tenth of the steps, then falls linearly to 0. A step has
    ``queries`` graded lists. The layers learn at ``learning_rate``, the facets' projections and token weights
    at ``head_rate``, the weights of similarities and the gates, which are few, at ``weight_rate``. Of a
    list's candidates without a grade of 1 or more, at most ``unrelated`` are used, others in each epoch.
    ``weight_decay`` is that of the layers; gradients are clipped to a norm of ``clip``. The result is an
    exponential moving average of the weights, with ``ema_decay``. ``loss`` is one of
    `qbe.train.reranker.loss.LOSSES`. In those over pairs of candidates (PAIRWISE) a pair that is crossed for
    two facets counts 1 + ``crossed`` times. ``patience`` epochs without a better score on dev end the
    training. Raises UsageError where there is no epoch, and for ``crossed`` with another loss.

    >>> Schedule(epochs=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `epochs` of at least 1, found 0
    """

    epochs: int = 1
    learning_rate: float = 6e-5
    head_rate: float = 2e-4
    weight_rate: float = 2e-2
    queries: int = 2
    unrelated: int = 4
    weight_decay: float = 0.01
    clip: float = 1.0
    ema_decay: float = field(default=0.98, metadata={"recorded_as": "memory"})
    loss: str = "logistic"
    crossed: float = 0.0
    patience: int = 2

    def __post_init__(self) -> None:
        """Raise UsageError where there is no epoch, and for ``crossed`` that the loss does not take."""
        if self.epochs < 1:
            raise UsageError(f"expected `epochs` of at least 1, found {self.epochs}")
        if not 0 <= self.crossed < inf:
            raise UsageError(f"expected `crossed` of 0 or more, found {self.crossed:g}")
        if self.crossed and self.loss not in PAIRWISE:
            raise UsageError(
                f"expected a `loss` over pairs ({', '.join(PAIRWISE)}) with `crossed`, found {self.loss}"
            )


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the rerankers are trained; the models' card says which data its choices were made on.

    The ``joint`` upper layers are trained, and there candidates attend to the query, unless ``separate``; a
    paper's first ``max_tokens`` are read. ``lists`` is how many lists are used, those with the most crossed
    pairs; None: all. Of these ``sampled`` are drawn at random; None: all. A share ``blended`` of the lists
    gets blended candidates (`qbe.train.reranker.blending`). Raises UsageError for less than one list, and for
    a share that is none.
    """

    joint: int = 3
    max_tokens: int = 384
    lists: int | None = None
    sampled: int | None = None
    blended: float = 0.0
    separate: bool = False
    schedule: Schedule = Schedule()

    def __post_init__(self) -> None:
        """Raise UsageError where there is no list, and for a share that is none."""
        if not 0 <= self.blended <= 1:
            raise UsageError(f"expected `blended` from 0 to 1, found {self.blended:g}")
        for name, count in (("lists", self.lists), ("sampled", self.sampled)):
            if count is not None and count < 1:
                raise UsageError(f"expected `{name}` of at least 1, found {count}")
