"""The facet tagger: one label a sentence, in context, from token states that the encoder computed anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from qbe.encode.encoder import Encoder
from qbe.encode.reader import Floats
from qbe.errors import ModelError
from qbe.models.encoder_format import TITLE_ABSTRACT
from qbe.models.registry import DEFAULT_TAGGER
from qbe.models.session import open_session
from qbe.models.tagger_files import TaggerFiles, resolve_tagger
from qbe.tag.chain import marginals
from qbe.types import FacetProbabilities, Paper, Sentence


class Tagger:
    """Reads sentence labels off an encoder's token states: a `qbe.encode.reader.TokenReader`.

    The task is sequential sentence classification (Cohan et al., 2019): sentences are labelled
    together, each in the context of its paper. A small network scores the five labels of every
    sentence; a chain over the labels turns the scores into probabilities.
    """

    width = len(FacetProbabilities._fields)

    def __init__(self, files: TaggerFiles) -> None:
        """Load the network; raises ModelError when a file is damaged or has other labels than these."""
        files.verify()
        card = files.card
        if tuple(card.labels) != FacetProbabilities._fields:
            raise ModelError(
                f"{files.folder}: expected a tagger of the labels {', '.join(FacetProbabilities._fields)}, "
                f"found {', '.join(card.labels)}; give another --tagger"
            )
        self.card = card
        self.layers = tuple(card.layers)
        self._session = open_session(files.head)
        self._begin, self._end = np.array(card.begin), np.array(card.end)
        self._transitions = np.array(card.transitions)

    @classmethod
    def open(cls, name: str = DEFAULT_TAGGER) -> Tagger:
        """The tagger of that name or folder."""
        return cls(resolve_tagger(name))

    @property
    def identity(self) -> dict[str, str]:
        """What tells this tagger's labels from another's."""
        head = next(iter(self.card.files.values()))
        return {"name": self.card.name, "sha256": head, "trunk": self.card.trunk["weights_sha256"]}

    def supports(self, encoder: Encoder) -> bool:
        """Whether it reads this encoder's states: of weights it knows, and of sentences in their context."""
        card = encoder.files.card
        in_context = card.convention.layout == TITLE_ABSTRACT and card.adapter is None
        return in_context and any(card.weights_sha256 == one["weights_sha256"] for one in self.card.trunks)

    def read(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Label scores (sentences, labels) of a window.

        ``states`` holds one array (tokens, dimension) for each of ``layers``, ``spans`` the tokens
        (begin, end) of each sentence. Sentences are read in the context of their window.
        """
        if not spans:
            return np.zeros((0, self.width), np.float32)
        feed = {"states": np.stack(states), "spans": inside(spans, len(states[0]))}
        scores: Floats = self._session.run(None, feed)[0][0]
        return scores

    def probabilities(self, scores: Floats) -> list[FacetProbabilities]:
        """Label probabilities of a paper's sentences from their scores (sentences, labels).

        Rounded to half precision, as an index stores them, so that what is read back has the same labels.
        """
        found = marginals(scores.astype(np.float64), self._begin, self._end, self._transitions)
        found = found.astype(np.float16)
        return [FacetProbabilities(*row) for row in found.tolist()]


def inside(spans: Sequence[tuple[int, int]], tokens: int) -> NDArray[np.bool_]:
    """Which tokens belong to which sentence (1, sentences, tokens), as a head is told it."""
    mask = np.zeros((1, len(spans), tokens), np.bool_)
    for i, (begin, end) in enumerate(spans):
        mask[0, i, begin:end] = True
    return mask


def labelled(paper: Paper, probabilities: Sequence[FacetProbabilities]) -> Paper:
    """The paper with each sentence's facet and probabilities, instead of any labels it had."""
    sentences = tuple(
        Sentence(sentence.text, found.facet, found)
        for sentence, found in zip(paper.sentences, probabilities, strict=True)
    )
    return replace(paper, sentences=sentences, labelled=True)
