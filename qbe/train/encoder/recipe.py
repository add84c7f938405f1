"""What an encoder's training is configured with: objective, distances, schedule. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qbe.errors import UsageError, check_positive
from qbe.models.encoder_format import L2, MEAN, SENTENCES, TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, EncoderFormat


class Objective(NamedTuple):
    """An objective of ASPIRE (Mysore et al., 2022): its name in the paper, and what it needs.

    ``rate`` is the learning rate that the authors settled on for computer science. ``alignment`` is the
    source of the alignment of two sentences: the ``contexts`` that cite both papers, the ``abstracts``
    themselves, or None where no sentences are aligned. ``transports`` marks those with an optimal transport,
    ``sentences`` the one that reads citing sentences instead of papers.
    """

    name: str
    rate: float
    alignment: str | None = None
    transports: bool = False
    sentences: bool = False


OBJECTIVES: Mapping[str, Objective] = {
    "bi-encoder": Objective("SPECTER-CoCite", 2e-5),
    "ts": Objective("TSASPIRE", 2e-5, alignment="contexts"),
    "ot": Objective("OTASPIRE", 3e-5, transports=True),
    "ts+ot": Objective("TS+OTASPIRE", 2e-5, alignment="contexts", transports=True),
    "abs": Objective("absASPIRE", 3e-5, alignment="abstracts"),
    "max": Objective("maxASPIRE", 3e-5),
    "att": Objective("attASPIRE", 2e-5),
    "cosent": Objective("CoSentBert", 2e-5, sentences=True),
}

LAYOUTS = (TITLE_ABSTRACT, TITLE_SEP_ABSTRACT)
"""The layouts that read sentences in context."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How distances are computed and compared.

    The distance of a positive should be smaller than that of a negative by ``margin``. ``temperature`` (tau)
    and ``regularization`` (lambda) are the transport's: masses are softmax(-smallest distance / tau), and the
    plan is regularized by its entropy / lambda. Distances are those of vectors as they are (``similarity``
    "l2"), or scaled to unit length ("cosine"). The paper's code has a margin of 1, a tau of 5000 (all
    sentences have nearly the same mass), a lambda of 20 (a blur of 0.05), and vectors as they are. Raises
    UsageError for numbers that are not above 0.

    >>> Settings(margin=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `margin` above 0, found 0
    """

    margin: float = 1.0
    temperature: float = 5000.0
    regularization: float = 20.0
    similarity: str = L2

    def __post_init__(self) -> None:
        """Raise UsageError for numbers that are not above 0."""
        for name in ("margin", "temperature", "regularization"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the network is fitted.

    AdamW; the learning rate rises linearly over a share ``warm_up`` of the steps, then falls linearly to 0.
    A step sees ``accumulate`` batches of ``batch`` pairs; negatives are drawn within a batch. Gradients are
    clipped to a norm of ``clip``; ``weight_decay`` is not applied to biases and normalizations. ``patience``
    epochs without a lower loss on dev end the training. Raises UsageError for numbers out of range.

    >>> Schedule(batch=1)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `batch` of at least 2, found 1
    """

    epochs: int = 1
    batch: int = 10
    accumulate: int = 3
    learning_rate: float = 2e-5
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int = 2

    def __post_init__(self) -> None:
        """Raise UsageError for numbers out of their ranges."""
        for name, least in (("epochs", 1), ("batch", 2), ("accumulate", 1)):
            value = getattr(self, name)
            if value < least:
                raise UsageError(f"expected `{name}` of at least {least}, found {value}")
        check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.warm_up < 1:
            raise UsageError(f"expected `warm_up` of at least 0 and below 1, found {self.warm_up:g}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that is chosen about an encoder's training, apart from data and seeds.

    >>> Recipe("cosent").format.layout, Recipe("ot").format.layout
    ('sentences', 'title-sep-abstract')
    """

    objective: str = "ot"
    layout: str = TITLE_SEP_ABSTRACT
    settings: Settings = Settings()
    schedule: Schedule = Schedule()

    @property
    def format(self) -> EncoderFormat:
        """How the trained encoder is to be read: as it was in training."""
        layout = SENTENCES if OBJECTIVES[self.objective].sentences else self.layout
        return EncoderFormat.pooled(layout, MEAN, self.settings.similarity)
