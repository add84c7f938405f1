"""Papers in batches: passes of similar length side by side, padded, in one call of a model made for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.models.batches import encoder_batches
from qbe.models.encode.pooling import Floats
from qbe.models.encode.tokenizer import Window
from qbe.models.encoder_files import EncoderFiles, state_output
from qbe.models.encoder_format import CLS
from qbe.models.graphs import IDS, LENGTHS, SCORES, SPANS, SUMS
from qbe.models.session import CPU, open_session

BATCH_TOKENS, LARGE_BATCH_TOKENS = 65536, 8192
"""Tokens of a batch, padding included, of models of up to SMALL dimensions and of larger ones: the fastest on
an H100 (`benchmarks/README.md`, "A GPU").
"""

SMALL = 384

STEP = 16
"""Rows are padded to a multiple of this, in which matrix units compute."""


def usual_tokens(dimension: int) -> int:
    """The tokens of a batch of a model by its number of dimensions.

    >>> usual_tokens(384), usual_tokens(768)
    (65536, 8192)
    """
    return BATCH_TOKENS if dimension <= SMALL else LARGE_BATCH_TOKENS


class Passed(NamedTuple):
    """What came out of a pass: the ``sums`` (1 + sentences, dimension) of the last states, first over the
    tokens that make the whole, then over each sentence's, and the ``values`` of a hook, (sentences, width);
    all float32.
    """

    sums: Floats
    values: Floats | None


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """The positions of passes, the longest first, in batches of at most ``tokens``, padding included, or of
    one pass.

    >>> list(batches([30, 60, 20, 64], tokens=128))
    [[3, 1], [0, 2]]
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        if batch and (len(batch) + 1) * padded(lengths[batch[0]]) > tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def padded(length: int) -> int:
    """The length of the rows of a batch whose longest pass has ``length`` tokens.

    >>> padded(17), padded(32)
    (32, 32)
    """
    return -(-length // STEP) * STEP


class BatchModel:
    """An encoder's model that takes batches (`qbe.models.batches`); threads may share it.

    A pass's results do not depend on the others of its batch but for rounding: padding is left out of
    attention and of sums, and each row is computed by itself. How a product is summed may depend on the
    batch's shape.
    """

    def __init__(
        self, files: EncoderFiles, device: str = CPU, *, half: bool = True, tokens: int | None = None
    ) -> None:
        """``half`` says whether products are in half precision or in single, ``tokens`` how large a batch is
        (None: by `usual_tokens`).

        Errors are those of `qbe.models.batches.encoder_batches` and `qbe.models.session.open_session`.
        """
        self._files, self._device, self._half = files, device, half
        self._tokens = tokens or usual_tokens(files.metadata.dimension)
        self._sessions: dict[Path | None, Any] = {}
        self._opening = threading.Lock()
        self._session(None)  # what cannot be used fails here

    def _session(self, hook: Any) -> Any:
        """The session that also computes a hook's values where the hook has a ``head``, a model."""
        head = getattr(hook, "head", None)
        with self._opening:
            if head not in self._sessions:
                layers = () if head is None else hook.layers
                path = encoder_batches(self._files, head, layers, half=self._half)
                self._sessions[head] = open_session(path, device=self._device)
            return self._sessions[head]

    def run(self, windows: Sequence[Window], hook: Any = None, pad: int = 0) -> list[Passed]:
        """What comes out of each pass; ``pad`` is the id of padding. A ``hook`` is one of
        `qbe.models.encode.encoder.TokenStateHook`; one without a model of its own gets token states.
        """
        passed: list[Passed | None] = [None] * len(windows)
        for places in batches([len(window.ids) for window in windows], self._tokens):
            results = self._run([windows[place] for place in places], hook, pad)
            for place, result in zip(places, results, strict=True):
                passed[place] = result
        return [result for result in passed if result is not None]

    def _run(self, windows: Sequence[Window], hook: Any, pad: int) -> Iterator[Passed]:
        """The same of the windows of one batch."""
        session, last = self._session(hook), self._files.metadata.layers
        has_head = getattr(hook, "head", None) is not None
        outputs = [SUMS]
        if has_head:
            outputs.append(SCORES)
        elif hook is not None:
            outputs += [state_output(layer, last) for layer in hook.layers]
        sums, *others = session.run(outputs, self._feed(windows, pad))
        for row, (ids, spans) in enumerate(windows):
            values = None
            if has_head:
                values = others[0][row, : len(spans)]
            elif hook is not None:
                states = [each[row, : len(ids)].astype(np.float32) for each in others]
                values = hook.compute(states, spans)
            yield Passed(sums[row, : 1 + len(spans)], values)

    def _feed(self, windows: Sequence[Window], pad: int) -> dict[str, NDArray[Any]]:
        """The inputs of a batch."""
        lengths = np.array([len(window.ids) for window in windows], np.int32)
        ids = np.full((len(windows), padded(int(lengths.max()))), pad, np.int64)
        # A row of spans for each pass; those that a pass does not have are empty.
        spans = np.zeros((len(windows), 1 + max(1, *(len(window.spans) for window in windows)), 2), np.int64)
        first = self._files.metadata.encoder_format.whole == CLS
        spans[:, 0, 1] = 1 if first else lengths
        for row, window in enumerate(windows):
            ids[row, : len(window.ids)] = window.ids
            if window.spans:
                spans[row, 1 : 1 + len(window.spans)] = window.spans
        return {IDS: ids, LENGTHS: lengths, SPANS: spans}
