"""What an encoder's training is asked for: objective, distances, schedule. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from qbe.models.encoder_format import L2, MEAN, SENTENCES, TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, EncoderFormat


class Objective(NamedTuple):
    """An objective of ASPIRE (Mysore et al., 2022): what the paper calls it, and what it needs.

    ``rate`` is the learning rate that the authors settled on for computer science. ``aligned`` says what
    tells which two sentences belong together, the ``contexts`` that cite both papers or the ``abstracts``
    themselves (None: no sentences are told). ``transports`` tells those with an optimal transport,
    ``sentences`` the one that reads citing sentences in place of papers.
    """

    name: str
    rate: float
    aligned: str | None = None
    transports: bool = False
    sentences: bool = False


OBJECTIVES: Mapping[str, Objective] = {
    "bi-encoder": Objective("SPECTER-CoCite", 2e-5),
    "ts": Objective("TSASPIRE", 2e-5, aligned="contexts"),
    "ot": Objective("OTASPIRE", 3e-5, transports=True),
    "ts+ot": Objective("TS+OTASPIRE", 2e-5, aligned="contexts", transports=True),
    "abs": Objective("absASPIRE", 3e-5, aligned="abstracts"),
    "max": Objective("maxASPIRE", 3e-5),
    "att": Objective("attASPIRE", 2e-5),
    "cosent": Objective("CoSentBert", 2e-5, sentences=True),
}

LAYOUTS = (TITLE_ABSTRACT, TITLE_SEP_ABSTRACT)
"""The layouts that read sentences in context."""


class Settings(NamedTuple):
    """How distances are taken and compared.

    A positive is to be nearer than a negative by ``margin``. ``temperature`` (tau) and ``regularization``
    (lambda) are the transport's: masses are softmax(-best distance / tau), and the plan is regularized by
    its entropy / lambda. Distances are those of vectors as they are (``similarity`` "l2"), or scaled to unit
    length ("cosine"). The paper's code has a margin of 1, a tau of 5000 (all sentences weigh nearly alike),
    a lambda of 20 (a blur of 0.05), and vectors as they are.
    """

    margin: float = 1.0
    temperature: float = 5000.0
    regularization: float = 20.0
    similarity: str = L2


class Schedule(NamedTuple):
    """How the network is fitted.

    AdamW, the learning rate going up over a share ``warm_up`` of the steps, then linearly down to nothing.
    A step sees ``accumulate`` batches of ``batch`` pairs; negatives come from within a batch. Gradients are
    clipped to a norm of ``clip``; ``weight_decay`` spares biases and normalizations. ``patience`` epochs
    without a lower loss on dev end it.
    """

    epochs: int = 1
    batch: int = 10
    accumulate: int = 3
    learning_rate: float = 2e-5
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int = 2


class Recipe(NamedTuple):
    """All that is chosen about an encoder's training, data and seeds apart."""

    objective: str = "ot"
    layout: str = TITLE_SEP_ABSTRACT
    settings: Settings = Settings()
    schedule: Schedule = Schedule()

    @property
    def convention(self) -> EncoderFormat:
        """How the trained encoder is to be read: as it was in training."""
        layout = SENTENCES if OBJECTIVES[self.objective].sentences else self.layout
        return EncoderFormat.pooled(layout, MEAN, self.settings.similarity)
