"""How long the stages of a build took, and how much memory each needed."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CLEAR, _PEAK_TOO = Path("/proc/self/clear_refs"), "5"
"""Linux resets a process's peak of memory when this is written to that file (proc(5))."""


class Timings:
    """Wall-clock seconds by stage, of the stages that this process ran, and peaks of memory.

    ``papers`` is reading, splitting and writing, of which ``splitting`` is a part; ``lucene``; ``vectors``
    is encoding and tagging, of which ``tagging`` is a part (summed over the threads, so that it may
    exceed ``vectors``); ``faiss``; ``files`` is digests and putting the index in place. ``peaks`` has the
    most bytes that the process held during each stage, mapped files among them; where the system cannot
    reset its count (Linux can), from the start of the process to the end of the stage.

    >>> timings = Timings()
    >>> with timings.stage("papers"):
    ...     words = timings.timed("splitting", str.split)("two words")
    >>> words, sorted(timings.seconds)
    (['two', 'words'], ['papers', 'splitting'])
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, int] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the seconds that the block takes to a stage, and records its peak of memory."""
        with contextlib.suppress(OSError):
            _CLEAR.write_text(_PEAK_TOO)
        try:
            with self._clock(name):
                yield
        finally:
            self.peaks[name] = max(self.peaks.get(name, 0), _peak())

    def timed(self, name: str, function: Callable[[T], R]) -> Callable[[T], R]:
        """The function, with the seconds that its calls take added to a stage."""

        def call(value: T) -> R:
            with self._clock(name):
                return function(value)

        return call

    def report(self, papers: int, sentences: int) -> str:
        """A JSON object: ``papers``, ``sentences``, ``seconds`` by stage, ``peak_rss_mb`` (10^6 bytes) by
        stage and of all, ``whole``.
        """
        whole = max(_peak(), *self.peaks.values(), 0)
        record = {
            "papers": papers,
            "sentences": sentences,
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "peak_rss_mb": {
                name: round(peak / 1e6, 1) for name, peak in {**self.peaks, "whole": whole}.items()
            },
        }
        return json.dumps(record, indent=1, allow_nan=False) + "\n"

    @contextlib.contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started


def _peak() -> int:
    """The most bytes that this process held since it began or the count was last reset."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
