"""Probabilities of the labels in a chain, as pure functions on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def marginals(scores: Doubles, begin: Doubles, end: Doubles, transitions: Doubles) -> Doubles:
    """Probability of each label of each sentence, all label sequences summed: (sentences, labels).

    A linear-chain conditional random field (Lafferty et al., 2001): a sequence's weight is the exponential
    of its ``scores`` (sentences, labels), of ``transitions`` (from row to column) between neighbours, and
    of ``begin`` and ``end`` at its ends. Computed by the forward-backward algorithm, scaled at each step
    (Rabiner, 1989, section V.A), in time linear in the number of sentences.

    >>> scores = np.array([[2.0, 0.0], [0.0, 0.0]])  # two sentences, two labels
    >>> staying = np.array([[1.0, 0.0], [0.0, 1.0]])  # equal labels in a row score more
    >>> marginals(scores, np.zeros(2), np.zeros(2), staying).round(2).tolist()
    [[0.88, 0.12], [0.68, 0.32]]
    """
    local = np.exp(scores - scores.max(axis=1, keepdims=True))
    step = np.exp(transitions - transitions.max())
    forward, backward = np.empty_like(local), np.empty_like(local)
    state = np.exp(begin - begin.max()) * local[0]
    forward[0] = state = state / state.sum()
    for i in range(1, len(local)):
        state = (state @ step) * local[i]
        state /= state.sum()
        forward[i] = state
    state = np.exp(end - end.max())
    backward[-1] = state = state / state.sum()
    for i in range(len(local) - 1, 0, -1):
        state = step @ (state * local[i])
        state /= state.sum()
        backward[i - 1] = state
    both = forward * backward
    result: Doubles = both / both.sum(axis=1, keepdims=True)
    return result
