"""What may look on while a paper is encoded: readers of token states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class TokenReader(Protocol):
    """Takes a few numbers a sentence from token states that the encoder computes anyway.

    ``read`` is called from several threads at a time when the encoder has several.
    """

    @property
    def layers(self) -> Sequence[int]:
        """The layers whose states are wanted: 0 the embeddings, n what leaves the n-th layer."""

    @property
    def width(self) -> int:
        """How many numbers a sentence gets."""

    def read(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Readings (spans, width) of one window.

        ``states`` holds one array (tokens, dimension) for each of ``layers``, in their order; a span
        (begin, end) gives the tokens of one sentence. All float32.
        """
