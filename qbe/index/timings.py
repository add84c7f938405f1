"""How long the stages of a build took, and how much memory it needed."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Timings:
    """Wall-clock seconds by stage, of the stages that this process ran.

    ``papers`` is reading, splitting and writing, of which ``splitting`` is a part; ``lucene``; ``vectors``
    is encoding and tagging, of which ``tagging`` is a part (summed over the threads, so that it may be
    more than its share); ``faiss``; ``files`` is digests and putting the index in place.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the seconds that the block takes to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started

    def timed(self, name: str, function: Callable[[T], R]) -> Callable[[T], R]:
        """The function, with the seconds that its calls take added to a stage."""

        def call(value: T) -> R:
            with self.stage(name):
                return function(value)

        return call

    def report(self, papers: int, sentences: int) -> str:
        """A JSON object: ``papers``, ``sentences``, ``seconds`` by stage, ``peak_rss_mb`` (10^6 bytes)."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        unit = 1 if sys.platform == "darwin" else 1024
        record = {
            "papers": papers,
            "sentences": sentences,
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "peak_rss_mb": round(peak * unit / 1e6, 1),
        }
        return json.dumps(record, indent=1) + "\n"
