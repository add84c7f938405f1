"""What an encoder's training is configured with: objective, distances, schedule. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qbe.errors import UsageError, check_positive
from qbe.models.encoder_format import L2, MEAN, SENTENCES, TITLE_SEP_ABSTRACT, EncoderFormat


class Objective(NamedTuple):
    """An objective of ASPIRE (Mysore et al., 2022): its name in the paper, and what it needs.

    ``rate`` is the learning rate that the authors settled on for computer science. ``alignment`` is the
    source of the alignment of two sentences: the ``contexts`` that cite both papers, the ``abstracts``
    themselves, or None where no sentences are aligned. ``sentences`` marks the one that reads citing
    sentences instead of papers.
    """

    name: str
    rate: float
    alignment: str | None = None
    sentences: bool = False


OBJECTIVES: Mapping[str, Objective] = {
    "bi-encoder": Objective("SPECTER-CoCite", 2e-5),
    "ts": Objective("TSASPIRE", 2e-5, alignment="contexts"),
    "ot": Objective("OTASPIRE", 3e-5),
    "ts+ot": Objective("TS+OTASPIRE", 2e-5, alignment="contexts"),
    "abs": Objective("absASPIRE", 3e-5, alignment="abstracts"),
    "max": Objective("maxASPIRE", 3e-5),
    "att": Objective("attASPIRE", 2e-5),
    "cosent": Objective("CoSentBert", 2e-5, sentences=True),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How distances are computed and compared; the values are those of the paper's code.

    The distance of a positive should be smaller than that of a negative by ``margin``. ``temperature`` (tau)
    and ``regularization`` (lambda) are the transport's: masses are softmax(-smallest distance / tau), so that
    with 5000 all sentences have nearly the same mass; the plan is regularized by its entropy / lambda (20 is
    a blur of 0.05).
    """

    margin: float = 1.0
    temperature: float = 5000.0
    regularization: float = 20.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that is chosen about an encoder's training, apart from data and seeds.

    Distances are those of vectors as they are (``similarity`` "l2"), or scaled to unit length ("cosine").
    AdamW at ``learning_rate`` (None: the objective's), which rises linearly over a share ``warm_up`` of the
    steps and then falls linearly to 0. A step sees ``accumulate`` batches of ``batch`` pairs; negatives are
    drawn within a batch. Gradients are clipped to a norm of ``clip``; ``weight_decay`` is not applied to
    biases and normalizations. ``patience`` epochs without a lower loss on dev end the training. Raises
    UsageError for numbers out of range.

    >>> Recipe("cosent").format.layout, Recipe("ot").format.layout, Recipe("ot").rate
    ('sentences', 'title-sep-abstract', 3e-05)
    >>> Recipe(epochs=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `epochs` of at least 1, found 0
    """

    objective: str = "ot"
    similarity: str = L2
    epochs: int = 1
    learning_rate: float | None = None
    batch: int = 10
    accumulate: int = 3
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int = 2
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        """Raise UsageError for numbers out of their ranges."""
        for name, least in (("epochs", 1), ("batch", 2), ("accumulate", 1)):
            value = getattr(self, name)
            if value < least:
                raise UsageError(f"expected `{name}` of at least {least}, found {value}")
        check_positive("learning_rate", self.rate)

    @property
    def rate(self) -> float:
        """The full learning rate."""
        return OBJECTIVES[self.objective].rate if self.learning_rate is None else self.learning_rate

    @property
    def format(self) -> EncoderFormat:
        """How the trained encoder is to be read: as it was in training."""
        layout = SENTENCES if OBJECTIVES[self.objective].sentences else TITLE_SEP_ABSTRACT
        return EncoderFormat.pooled(layout, MEAN, self.similarity)
