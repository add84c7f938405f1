"""Agreement of a tagger's labels with those of CSAbstruct's annotators, on the states of an encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models.cards import TaggerFiles, write_card
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_tagger
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.train.tagger.data import LABELS, LabelledAbstract, read_csabstruct
from qbe.train.tagger.fit import Floats
from qbe.types import FacetProbabilities, Paper, Sentence


class Scores(NamedTuple):
    """Agreement over all sentences of a split, in per cent.

    ``micro_f1`` is over the five labels (equal to accuracy, since each sentence has one label), ``folded``
    the same with objective folded into background; ``confident`` is micro_f1 with each sentence weighted by
    its annotators' confidence.
    """

    micro_f1: float
    folded: float
    confident: float

    @property
    def figures(self) -> dict[str, float]:
        """The scores that a card has, rounded."""
        return {name: round(value, 2) for name, value in self._asdict().items()}


def score(abstracts: Sequence[LabelledAbstract], probabilities: Sequence[NDArray[np.floating]]) -> Scores:
    """Compare probabilities (sentences, labels) of each abstract with its labels.

    Labels are chosen as in a search, facet first (`FacetProbabilities.label`). Sentences of an abstract
    without a prediction count as if they had the label predicted for the last one.

    >>> abstract = LabelledAbstract(("A.", "B."), labels=(0, 2), confidences=(1.0, 0.5))
    >>> score([abstract], [np.eye(5)[[0, 3]]]).figures  # background, as labelled; result, labelled method
    {'micro_f1': 50.0, 'folded': 50.0, 'confident': 66.67}
    """
    predicted: list[int] = []
    for abstract, rows in zip(abstracts, probabilities, strict=True):
        labels = [LABELS.index(FacetProbabilities(*row).label) for row in rows.tolist()]
        predicted += labels + labels[-1:] * (len(abstract.labels) - len(labels))
    true = [label for abstract in abstracts for label in abstract.labels]
    fold = np.array([0 if label == "objective" else i for i, label in enumerate(LABELS)])
    weights = [confidence for abstract in abstracts for confidence in abstract.confidences]
    right = np.array(true) == np.array(predicted)
    return Scores(
        100 * float(right.mean()),
        100 * float((fold[true] == fold[predicted]).mean()),
        100 * float(np.average(right, weights=weights)),
    )


MAX_LOSS = 0.5
"""The most points of micro-F1 on dev that a tagger may lose on an encoder it was not trained on."""


def measure(encoder: Encoder, tagger: Tagger, abstracts: Sequence[LabelledAbstract]) -> Scores:
    """Agreement of the labels that a tagger predicts from an encoder's states with the annotators'."""
    tagging = TaggingEncoder(encoder, tagger, "predicted")
    papers = (Paper("measured", "", tuple(map(Sentence, abstract.sentences))) for abstract in abstracts)
    return score(abstracts, [_probabilities(paper) for paper, _ in tagging.encode(papers)])


def admit(folder: Path, name: str, csabstruct: Path, threads: int) -> dict[str, dict[str, float]]:
    """Measure a tagger on another encoder, and record in the tagger's card that it can be used with it.

    ``folder`` is the tagger's, ``name`` the encoder's name or folder. This is for encoders whose weights are
    close to those of the encoder that the tagger was trained on. Returns scores by split. Raises CorpusError
    for labels that cannot be read, ModelError for an encoder of another dimension, or on which the tagger
    loses more than ``MAX_LOSS`` points of micro-F1 on dev.
    """
    labelled = read_csabstruct(csabstruct)
    metadata, encoder = resolve_tagger(str(folder)).metadata, Encoder.open(name, threads=threads)
    identity = {"name": encoder.files.metadata.name, "weights_sha256": encoder.files.metadata.weights_sha256}
    others = [other for other in metadata.also_reads if other["name"] != identity["name"]]
    wider = dataclasses.replace(metadata, also_reads=[*others, identity])
    original, tagger = (
        Encoder.open(metadata.trunk["name"], threads=threads),
        Tagger(TaggerFiles(folder, wider)),
    )
    if encoder.dimension != original.dimension or not tagger.supports(encoder):
        raise ModelError(
            f"expected an encoder in the format of {metadata.trunk['name']}, of {original.dimension} "
            f"dimensions, found {name} of {encoder.dimension}; give another `encoder`"
        )
    before = measure(original, tagger, labelled["dev"]).figures["micro_f1"]
    scores = {split: measure(encoder, tagger, labelled[split]).figures for split in ("dev", "test")}
    lost = before - scores["dev"]["micro_f1"]
    if lost > MAX_LOSS:
        raise ModelError(
            f"expected a loss of at most {MAX_LOSS} points of micro-F1 on dev, found {lost:.2f} on {name}; "
            "train a tagger for it with: qbe train tagger"
        )
    write_card(folder, dataclasses.replace(metadata, also_reads=[*others, {**identity, "measured": scores}]))
    return scores


def _probabilities(paper: Paper) -> Floats:
    rows: Sequence[Any] = [sentence.probabilities for sentence in paper.sentences]
    return np.array(rows, np.float32)
