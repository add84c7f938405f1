"""Facets of an index: given by the corpus or predicted by a tagger, and which sentences count as which."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.papers import FACET_CODES, PaperLayout
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]


def without_labels(paper: Paper) -> Paper:
    """The paper without the facets of its sentences, not labelled.

    >>> without_labels(index.paper("s001")).sentences[0].facet is None
    True
    """
    sentences = tuple(Sentence(sentence.text) for sentence in paper.sentences)
    return dataclasses.replace(paper, sentences=sentences, labelled=False)


def facet_mask(layout: PaperLayout, facet: Facet) -> Mask:
    """Which sentences (sentences,) count as a facet.

    Those of the facet, and in a predicted paper that has none, the best guess: the sentence where the
    facet is most probable, the first of equals. It is what `qbe.types.Paper.facet_positions` gives for one
    paper.

    >>> shares = np.array([[0.7, 0, 0.3, 0, 0], [0.1, 0, 0.6, 0.3, 0]], np.float16)
    >>> layout = PaperLayout(np.array([0, 2]), np.array([1, 2], np.uint8), shares)  # background, method
    >>> facet_mask(layout, Facet.METHOD).tolist(), facet_mask(layout, Facet.RESULT).tolist()
    ([False, True], [False, True])
    """
    mask: Mask = layout.facets == FACET_CODES.index(facet)
    if layout.probabilities is None:
        return mask
    lacking = _predicted_papers(layout) & ~_papers_with(layout, facet)
    probability = _shares(layout.probabilities)[:, [*Facet].index(facet)]
    starts = layout.starts[:-1]
    best = np.maximum.reduceat(probability, starts)
    sizes = np.diff(layout.starts)
    guesses = np.flatnonzero(np.repeat(lacking, sizes) & (probability == np.repeat(best, sizes)))
    _, first = np.unique(np.searchsorted(starts, guesses, side="right"), return_index=True)
    mask[guesses[first]] = True
    return mask


def describe_predictions(layout: PaperLayout) -> dict[str, dict[str, int]]:
    """How many predicted sentences each label has (``labels``), and how many predicted papers are without a
    sentence of a facet (``lacking``). The layout must have probabilities.

    >>> shares = np.array([[0.7, 0, 0.3, 0, 0], [0.1, 0, 0.6, 0.3, 0]], np.float16)
    >>> describe_predictions(PaperLayout(np.array([0, 2]), np.array([1, 2], np.uint8), shares))["lacking"]
    {'background': 0, 'method': 0, 'result': 1}
    """
    assert layout.probabilities is not None
    probabilities = layout.probabilities[layout.probabilities.any(axis=1)]
    best = _shares(probabilities).argmax(axis=1) + 1
    best[(best == 1) & (probabilities[:, 0] >= probabilities[:, 1])] = 0
    names = FacetProbabilities._fields
    counts = np.bincount(best, minlength=len(names)).tolist()
    predicted = _predicted_papers(layout)
    return {
        "labels": dict(zip(names, counts, strict=True)),
        "lacking": {str(facet): int((predicted & ~_papers_with(layout, facet)).sum()) for facet in Facet},
    }


def _predicted_papers(layout: PaperLayout) -> Mask:
    """Which papers (papers,) were tagged. Every paper has a sentence, and probabilities are never all 0."""
    assert layout.probabilities is not None
    return np.asarray(layout.probabilities[layout.starts[:-1]].any(axis=1), dtype=np.bool_)


def _papers_with(layout: PaperLayout, facet: Facet) -> Mask:
    """Which papers (papers,) have a sentence of the facet."""
    having = np.logical_or.reduceat(layout.facets == FACET_CODES.index(facet), layout.starts[:-1])
    return np.asarray(having, dtype=np.bool_)


def _shares(probabilities: NDArray[Any]) -> Floats:
    """Probabilities (sentences, 4) of the facets in their order and of ``other``.

    Single precision holds the sum of two half-precision numbers up to 1 exactly.
    """
    single = probabilities.astype(np.float32)
    shares: Floats = np.concatenate([single[:, :1] + single[:, 1:2], single[:, 2:]], axis=1)
    return shares
