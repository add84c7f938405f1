"""Agreement of predicted labels with those of the annotators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.train.tagger.csabstruct import LABELS, LabelledAbstract
from qbe.types import FacetProbabilities


class Scores(NamedTuple):
    """Agreement over all sentences of a split, in per cent.

    ``micro_f1`` is over the five labels (equal to accuracy, since each sentence has one label), ``folded``
    the same with objective folded into background; ``confident`` is micro_f1 with each sentence weighted by
    its annotators' confidence. ``confusion`` (labels, labels) counts sentences by true and predicted label.

    >>> scores = score([LabelledAbstract(("A.", "B."), (0, 2), (1.0, 0.5))], [np.eye(5)[[0, 3]]])
    >>> scores.by_label()["background"]
    {'precision': 100.0, 'recall': 100.0, 'f1': 100.0, 'sentences': 1}
    """

    micro_f1: float
    folded: float
    confident: float
    confusion: NDArray[np.int64]

    @property
    def figures(self) -> dict[str, float]:
        """The scores that a card has, rounded."""
        return {
            "micro_f1": round(self.micro_f1, 2),
            "folded": round(self.folded, 2),
            "confident": round(self.confident, 2),
        }

    def __str__(self) -> str:
        return f"micro-F1 {self.micro_f1:.2f}, folded {self.folded:.2f}, by confidence {self.confident:.2f}"

    def by_label(self) -> dict[str, dict[str, float]]:
        """Precision, recall and F1 of each label in per cent, and its number of sentences."""
        right = np.diag(self.confusion)
        predicted, true = self.confusion.sum(axis=0), self.confusion.sum(axis=1)
        return {
            label: {
                "precision": 100 * float(right[i] / max(1, predicted[i])),
                "recall": 100 * float(right[i] / max(1, true[i])),
                "f1": 200 * float(right[i] / max(1, predicted[i] + true[i])),
                "sentences": int(true[i]),
            }
            for i, label in enumerate(LABELS)
        }


def score(abstracts: Sequence[LabelledAbstract], probabilities: Sequence[NDArray[np.floating]]) -> Scores:
    """Compare probabilities (sentences, labels) of each abstract with its labels.

    Labels are chosen as in a search, facet first (`FacetProbabilities.label`). Sentences of an abstract
    without a prediction count as if they had the label predicted for the last one.

    >>> abstract = LabelledAbstract(("A.", "B."), labels=(0, 2), confidences=(1.0, 0.5))
    >>> print(score([abstract], [np.eye(5)[[0, 3]]]))  # background, as labelled; result, labelled method
    micro-F1 50.00, folded 50.00, by confidence 66.67
    """
    true: list[int] = []
    predicted: list[int] = []
    confidences: list[float] = []
    for abstract, rows in zip(abstracts, probabilities, strict=True):
        labels = [LABELS.index(FacetProbabilities(*row).label) for row in rows.tolist()]
        labels += labels[-1:] * (len(abstract.labels) - len(labels))
        predicted += labels
        true += abstract.labels
        confidences += abstract.confidences
    confusion = np.zeros((len(LABELS), len(LABELS)), np.int64)
    np.add.at(confusion, (true, predicted), 1)
    right = np.array(true) == np.array(predicted)
    fold = np.array([0 if label == "objective" else i for i, label in enumerate(LABELS)])
    weights = np.array(confidences)
    return Scores(
        100 * float(right.mean()),
        100 * float((fold[true] == fold[predicted]).mean()),
        100 * float((right * weights).sum() / weights.sum()),
        confusion,
    )
