"""Settings of a build, and how it is carried out: threads, progress, times."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from qbe.errors import UsageError
from qbe.index.dense.ann import AUTO, EXACT, STORED
from qbe.models.encoder_files import PRECISIONS
from qbe.models.registry import DEFAULT_ENCODER, DEFAULT_TAGGER
from qbe.models.session import CPU, DEVICES
from qbe.types import Paper

ShareRead = Callable[[], float | None]
"""Gives the share of a corpus that has been read; None where it is not known."""


class Progress(Protocol):
    """An observer of a build's progress; the command line shows bars, a library stays silent."""

    def papers(self, papers: Iterable[Paper], share_read: ShareRead) -> Iterator[Paper]:
        """Pass the corpus through while it is read; ``share_read`` says how much of it has been."""

    def steps(
        self, name: str, unit: str, total: int
    ) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        """A context, for a stage of ``total`` items, that gives a function to call with the number of items
        just finished.
        """

    def stage(self, name: str) -> None:
        """A stage without steps begins."""


class Silent:
    """A `Progress` that shows nothing.

    >>> with Silent().steps("encoding", "papers", total=2) as advance:
    ...     advance(1)
    >>> list(Silent().papers(["a paper"], lambda: None))
    ['a paper']
    """

    def papers(self, papers: Iterable[Paper], share_read: ShareRead) -> Iterator[Paper]:  # noqa: ARG002
        """Pass the corpus through."""
        return iter(papers)

    def steps(
        self,
        name: str,  # noqa: ARG002
        unit: str,  # noqa: ARG002
        total: int,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        """A function that does nothing."""
        return contextlib.nullcontext(lambda _: None)

    def stage(self, name: str) -> None:
        """Nothing is shown."""


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


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What shapes an index, its corpus apart; a resumed build must have the same settings.

    ``bm25`` and ``dense`` say whether it has Lucene postings and vectors. ``encoder`` and ``tagger`` are
    names or folders, ``precision`` (``int8`` or ``fp32``) is the encoder's, and ``device``, one of
    `qbe.models.session.DEVICES`, runs it.

    ``facets`` says whose labels an index with vectors holds: with ``given`` those that the corpus brings, and
    the ``tagger``'s for papers without; with ``predicted`` the tagger's for all papers. Without vectors
    nothing is tagged, and given labels are kept. ``positions`` and ``docvectors`` store term positions and
    vectors in Lucene. ``faiss`` says which FAISS index finds candidates (a factory string such as
    ``IVF1024,PQ64x4fs``, or ``auto``: by the size of the corpus), ``stored`` how vectors are stored (one
    of `qbe.index.dense.ann.STORED`, or ``auto``: by the size of the corpus).

    Raises TypeError and UsageError for values that are not possible.

    >>> BuildSettings(bm25=False).encoder
    'facet-encoder'
    """

    bm25: bool = True
    dense: bool = True
    encoder: str = DEFAULT_ENCODER
    precision: str = "int8"
    facets: str = "given"
    tagger: str = DEFAULT_TAGGER
    positions: bool = False
    docvectors: bool = False
    faiss: str = AUTO
    stored: str = AUTO
    device: str = CPU

    def __post_init__(self) -> None:
        """Raise TypeError for values of other types, UsageError for ones that are not possible."""
        for name in ("encoder", "precision", "facets", "tagger", "faiss", "stored", "device"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"expected `{name}` as a str, found {type(value).__name__}")
        for name, possible in (
            ("precision", PRECISIONS),
            ("stored", (AUTO, *STORED)),
            ("device", DEVICES),
        ):
            if getattr(self, name) not in possible:
                raise UsageError(f"expected `{name}` of {', '.join(possible)}, found {getattr(self, name)!r}")
        if not (self.bm25 or self.dense):
            raise UsageError("expected `bm25`, `dense` or both, found neither; an index needs one of them")

    def record(self, corpus: Sequence[str]) -> dict[str, Any]:
        """The settings, with the names of the corpus's sources, as an index's manifest holds them."""
        record = {"corpus": list(corpus), **dataclasses.asdict(self)}
        if self.device == CPU:  # as in the indexes of the time before there was a choice
            del record["device"]
        return record

    @classmethod
    def read(cls, record: Mapping[str, Any], **changes: Any) -> BuildSettings:
        """The settings of a manifest, with changes. Older ones name kinds of FAISS indexes; all of these but
        the exact one become ``auto``.
        """
        settings = {name: value for name, value in record.items() if name not in ("corpus", "ann")}
        if record.get("ann", {}).get("kind") == "flat":
            settings["faiss"] = EXACT
        return cls(**{**settings, **changes})


@dataclass(frozen=True, slots=True)
class Execution:
    """How a build or change is carried out, which has no influence on its result: the number of ``threads``,
    the observer of its ``progress``, and the ``timings`` of its stages.

    >>> execution = Execution(threads=2)
    >>> with execution.timings.stage("papers"):
    ...     pass
    >>> list(execution.timings.seconds)
    ['papers']
    """

    threads: int = 1
    progress: Progress = field(default_factory=Silent)
    timings: Timings = field(default_factory=Timings)
