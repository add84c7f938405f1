"""Evaluation of a tagger on the hidden states of an encoder, as in use, over labelled abstracts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbe.encode.encoder import Encoder
from qbe.errors import ModelError
from qbe.models.tagger_files import TaggerFiles, resolve_tagger, write_tagger_card
from qbe.tag.tagger import Tagger
from qbe.tag.tagging import TaggingEncoder
from qbe.train.tagger.csabstruct import LabelledAbstract, read_csabstruct
from qbe.train.tagger.fit import Floats
from qbe.train.tagger.scores import Scores, score
from qbe.types import Paper, Sentence

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
    write_tagger_card(
        folder, dataclasses.replace(metadata, also_reads=[*others, {**identity, "measured": scores}])
    )
    return scores


def _probabilities(paper: Paper) -> Floats:
    rows: Sequence[Any] = [sentence.probabilities for sentence in paper.sentences]
    return np.array(rows, np.float32)
