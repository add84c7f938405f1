"""How well the sentences of two papers match: pure functions of their distances, many pairs at a time.

These are the matchings of ASPIRE (Mysore, Cohan and Hope, NAACL 2022; D is the matrix of Euclidean distances
between sentence vectors) and the mean of best matches. ``distances`` and ``similarities`` are (pairs, m, n)
float64; ``rows`` (pairs, m) and ``columns`` (pairs, n) bool are True for sentences, of which each side has at
least one, and False for padding. Scores are (pairs,) float64, more is better; neither padding nor other pairs
change them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qbe.parallel import Workers
from qbe.rerank.entropic_transport import REGULARIZATION, entropic_transport
from qbe.rerank.semidual import Bools, Doubles, total


def single_match(distances: Doubles, rows: Bools, columns: Bools) -> Doubles:
    """Minus the least distance, ``-min D[i, j]``: how TSASPIRE ranks.

    >>> rows, columns = np.array([[True, True]]), np.array([[True, False]])  # one candidate sentence, padded
    >>> single_match(np.array([[[3.0, 1.0], [2.0, 4.0]]]), rows, columns).tolist()
    [-2.0]
    """
    scores: Doubles = -np.where(cells(rows, columns), distances, np.inf).min(axis=(1, 2))
    return scores


def attention(distances: Doubles, rows: Bools, columns: Bools) -> Doubles:
    """Minus the mean distance by soft attention, ``-sum D * A`` where A is the softmax of -D over all pairs
    of sentences: ATTASPIRE.

    >>> distances = np.array([[[0.0, np.log(3)]]])  # weights 3/4 and 1/4
    >>> attention(distances, np.array([[True]]), np.array([[True, True]])).round(4).tolist()
    [-0.2747]
    """
    inside = cells(rows, columns)
    nearness = np.where(inside, -distances, -np.inf)
    weights = np.exp(nearness - nearness.max(axis=(1, 2), keepdims=True))
    weighted = weights * np.where(inside, distances, 0)
    return -_over_all(weighted) / _over_all(weights)


class Transported(NamedTuple):
    """Scores (pairs,), and the plans (pairs, m, n) float64 that they come from, each of mass 1."""

    scores: Doubles
    plans: Doubles


def transport(
    distances: Doubles,
    rows: Bools,
    columns: Bools,
    temperature: float,
    regularization: float = REGULARIZATION,
    workers: Workers | None = None,
) -> Transported:
    """Minus the cost of moving one paper's sentences to the other's, ``-sum D * P``: OTASPIRE.

    P is the entropy-regularized optimal plan (see `qbe.rerank.entropic_transport`, and its errors) between
    the marginals of `marginals`.

    >>> distances, tau = np.array([[[1.0, 3.0]]]), 2 / np.log(3)  # masses 3/4 and 1/4
    >>> result = transport(distances, np.array([[True]]), np.array([[True, True]]), tau)
    >>> result.scores.round(6).tolist(), result.plans.round(6).tolist()
    ([-1.5], [[[0.75, 0.25]]])
    """
    sources, targets = marginals(distances, rows, columns, temperature)
    plans = entropic_transport(distances, sources, targets, regularization, workers=workers)
    return Transported(-_over_all(plans * np.where(plans > 0, distances, 0)), plans)


def marginals(distances: Doubles, rows: Bools, columns: Bools, temperature: float) -> tuple[Doubles, Doubles]:
    """How much each sentence counts, (pairs, m) and (pairs, n), each summing to 1, padding 0.

    On each side the softmax of ``-min D / temperature``, the minimum being over the other side's sentences.

    >>> distances, tau = np.array([[[1.0, 3.0]]]), 2 / np.log(3)  # exp(-1 / tau) is 3 times exp(-3 / tau)
    >>> rows, columns = marginals(distances, np.array([[True]]), np.array([[True, True]]), tau)
    >>> rows.tolist(), columns.round(6).tolist()
    ([[1.0]], [[0.75, 0.25]])
    """
    near = np.where(cells(rows, columns), -distances, -np.inf)
    return _softmax(near.max(axis=2) / temperature), _softmax(near.max(axis=1) / temperature)


def mean_max(similarities: Doubles, rows: Bools, columns: Bools) -> Doubles:
    """The mean over the rows' sentences of each one's best similarity.

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.

    >>> two = np.array([[True, True]])
    >>> mean_max(np.array([[[0.75, 0.25], [0.0, 0.5]]]), two, two).tolist()  # (0.75 + 0.5) / 2
    [0.625]
    """
    best = np.where(cells(rows, columns), similarities, -np.inf).max(axis=2)
    mean: Doubles = total(np.where(rows, best, 0), 1) / rows.sum(axis=1)
    return mean


def cells(rows: Bools, columns: Bools) -> Bools:
    """Which pairs of sentences (pairs, m, n) bool are not padding.

    >>> cells(np.array([[True, False]]), np.array([[True, True]])).tolist()
    [[[True, True], [False, False]]]
    """
    return rows[:, :, None] & columns[:, None]


def _softmax(logits: Doubles) -> Doubles:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Doubles = powers / total(powers, 1)[:, None]
    return shares


def _over_all(values: Doubles) -> Doubles:
    """Sums (pairs,) over both sides' sentences."""
    return total(total(values, 2), 1)
