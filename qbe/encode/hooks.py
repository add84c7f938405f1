"""Hooks that receive token states while a paper is encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class TokenStateHook(Protocol):
    """Computes a few numbers for each sentence from token states that the encoder computes anyway.

    An encoder with several threads calls `compute` from several threads at the same time.

    >>> class Lengths:  # the number of tokens of each sentence, from no layer at all
    ...     layers, width = (), 1
    ...     def compute(self, states, spans):
    ...         return np.array([[end - begin] for begin, end in spans], np.float32)
    >>> Lengths().compute([], [(1, 4), (4, 9)]).tolist()
    [[3.0], [5.0]]
    """

    @property
    def layers(self) -> Sequence[int]:
        """The layers whose states the hook receives: 0 the embeddings, n the output of the n-th layer."""

    @property
    def width(self) -> int:
        """The number of values for each sentence."""

    def compute(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Values (spans, width) of one window.

        ``states`` holds one array (tokens, dimension) for each of ``layers``, in their order; a span
        (begin, end) gives the tokens of one sentence. All float32.
        """
