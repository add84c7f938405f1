"""Tokens of papers and the frozen encoder's hidden states in some layers, kept in memory for training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.parallel import ordered_map
from qbe.types import Paper


class Tokens(NamedTuple):
    """The first window of a paper.

    ``ids`` (tokens,) are its tokens and ``spans`` the first token and the end of each sentence; sentences
    that did not fit are left out. ``numbers`` (tokens, layers, dimension) int8 times ``scales`` (tokens,
    layers, 1) float16 are the encoder's hidden states, in one byte per number.

    >>> Tokens(np.int32([101]), (), np.int8([[[127, -64]]]), np.float16([[[0.5]]])).states.tolist()
    [[[63.5, -32.0]]]
    """

    ids: NDArray[np.int32]
    spans: tuple[tuple[int, int], ...]
    numbers: NDArray[np.int8]
    scales: NDArray[np.float16]

    @property
    def states(self) -> Floats:
        """The encoder's hidden states (tokens, layers, dimension)."""
        states: Floats = self.numbers.astype(np.float32) * self.scales.astype(np.float32)
        return states


class StateRecorder:
    """A `qbe.encode.hooks.TokenStateHook` that keeps the hidden states of the first window.

    >>> recorder = StateRecorder([12])
    >>> recorder.compute([np.float32([[64, -254]])], [(0, 1)]).shape
    (1, 0)
    >>> numbers, scales = recorder.first
    >>> numbers.tolist(), scales.tolist()
    ([[[32, -127]]], [[[2.0]]])
    """

    width = 0

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.first: tuple[NDArray[np.int8], NDArray[np.float16]] | None = None

    def compute(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Keep the states of a paper's first window; the result (sentences, 0) is empty."""
        if self.first is None:
            stacked = np.stack(states, axis=1)
            scales = np.maximum(np.abs(stacked).max(axis=2, keepdims=True) / 127, 1e-6).astype(np.float16)
            numbers = np.rint(stacked / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
            self.first = numbers, scales
        return np.zeros((len(spans), 0), np.float32)


def record_states(encoder: Encoder, layers: Sequence[int], papers: Iterable[Paper]) -> list[Tokens]:
    """Tokens and states of each paper, in order; ``encoder.threads`` papers are encoded at a time."""

    def record_paper(paper: Paper) -> Tokens:
        recorder = StateRecorder(layers)
        encoder.encode_paper(paper, recorder)
        assert recorder.first is not None
        window = next(encoder.windows(paper))
        return Tokens(np.array(window.ids, np.int32), tuple(window.spans), *recorder.first)

    return list(ordered_map(record_paper, papers, encoder.threads))
