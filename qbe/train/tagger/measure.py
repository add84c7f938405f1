"""A tagger measured as it is used: on an encoder's own pass, over labelled abstracts."""

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

MOST_LOST = 0.5
"""Points of micro-F1 on dev that a tagger may lose on an encoder it was not trained on."""


def measure(encoder: Encoder, tagger: Tagger, abstracts: Sequence[LabelledAbstract]) -> Scores:
    """How well the labels that a tagger reads off an encoder's states agree with the annotators'."""
    tagging = TaggingEncoder(encoder, tagger, "predicted")
    papers = (Paper("measured", "", tuple(map(Sentence, abstract.sentences))) for abstract in abstracts)
    return score(abstracts, [_probabilities(paper) for paper, _ in tagging.encode(papers)])


def admit(folder: Path, name: str, csabstruct: Path, threads: int) -> dict[str, dict[str, float]]:
    """Let the tagger in ``folder`` read the encoder of that name or folder, too, and note its figures there.

    This is for encoders whose layers are near those of the one it was trained on. Returns figures by split.
    Raises CorpusError for labels that cannot be read, ModelError for an encoder of other dimension, or on
    which the tagger loses more than ``MOST_LOST`` points of micro-F1 on dev.
    """
    labelled = read_csabstruct(csabstruct)
    card, encoder = resolve_tagger(str(folder)).metadata, Encoder.open(name, threads=threads)
    trunk = {"name": encoder.files.metadata.name, "weights_sha256": encoder.files.metadata.weights_sha256}
    others = [other for other in card.also_reads if other["name"] != trunk["name"]]
    wider = dataclasses.replace(card, also_reads=[*others, trunk])
    own, tagger = Encoder.open(card.trunk["name"], threads=threads), Tagger(TaggerFiles(folder, wider))
    if encoder.dimension != own.dimension or not tagger.supports(encoder):
        raise ModelError(
            f"expected an encoder read as {card.trunk['name']} is, of {own.dimension} dimensions, found "
            f"{name} of {encoder.dimension}; give another --encoder"
        )
    before = measure(own, tagger, labelled["dev"]).figures["micro_f1"]
    found = {split: measure(encoder, tagger, labelled[split]).figures for split in ("dev", "test")}
    lost = before - found["dev"]["micro_f1"]
    if lost > MOST_LOST:
        raise ModelError(
            f"expected a loss of at most {MOST_LOST} points of micro-F1 on dev, found {lost:.2f} on {name}; "
            "train a tagger for it with: python -m qbe.train tagger"
        )
    write_tagger_card(folder, dataclasses.replace(card, also_reads=[*others, {**trunk, "measured": found}]))
    return found


def _probabilities(paper: Paper) -> Floats:
    rows: Sequence[Any] = [sentence.probabilities for sentence in paper.sentences]
    return np.array(rows, np.float32)
