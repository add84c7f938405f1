"""Settings of a build, and how it is carried out: threads, progress, times."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from qbe.errors import UsageError
from qbe.index.dense.ann import AUTO, EXACT, STORED
from qbe.models.cards import DEFAULT_ENCODER, DEFAULT_TAGGER
from qbe.models.session import CPU, DEVICES, PRECISIONS, chosen_device, usual_precision
from qbe.models.tagger import LABEL_SOURCES
from qbe.types import Paper

ShareRead = Callable[[], float | None]
"""Gives the share of a corpus that has been read; None where it is not known."""


class Progress(Protocol):
    """An observer of a build's progress; the command line shows bars, a library stays silent."""

    def papers(self, papers: Iterable[Paper], share_read: ShareRead) -> Iterator[Paper]:  # noqa: ARG002
        """Pass the corpus through while it is read; ``share_read`` says how much of it has been."""
        return iter(papers)

    def steps(
        self,
        name: str,  # noqa: ARG002
        unit: str,  # noqa: ARG002
        total: int,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        """A context, for a stage of ``total`` items, that gives a function to call with the number of items
        just finished.
        """
        return contextlib.nullcontext(lambda _: None)

    def stage(self, name: str) -> None:  # noqa: ARG002
        """A stage without steps begins."""
        return


class Silent(Progress):
    """A `Progress` that shows nothing.

    >>> with Silent().steps("encoding", "papers", total=2) as advance:
    ...     advance(1)
    >>> list(Silent().papers(["a paper"], lambda: None))
    ['a paper']
    """


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What shapes an index, its corpus apart; a resumed build must have the same settings.

    ``bm25`` and ``dense`` say whether it has Lucene postings and vectors. ``encoder`` and ``tagger`` are
    names or folders, ``precision`` is the encoder's, one of `qbe.models.session.PRECISIONS` (by default
    int8, on a GPU fp16), and ``device``, one of `qbe.models.session.DEVICES`, runs it; ``auto`` becomes what
    this machine has.

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
    precision: str = AUTO
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
            ("precision", (AUTO, *PRECISIONS)),
            ("stored", (AUTO, *STORED)),
            ("device", DEVICES),
            ("facets", LABEL_SOURCES),
        ):
            if getattr(self, name) not in possible:
                raise UsageError(f"expected `{name}` of {', '.join(possible)}, found {getattr(self, name)!r}")
        int8 = self.device == AUTO and self.precision == "int8"  # of an index that grows, say
        device = CPU if int8 else chosen_device(self.device)
        object.__setattr__(self, "device", device)
        if self.precision == AUTO:
            object.__setattr__(self, "precision", usual_precision(device))
        if not self.bm25 and (self.positions or self.docvectors):
            raise UsageError("`positions` and `docvectors` are of use with `bm25` only; drop them")
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
        if not settings.get("bm25", True):  # earlier versions took these without Lucene
            settings |= {"positions": False, "docvectors": False}
        return cls(**{**settings, **changes})


@dataclass(frozen=True, slots=True)
class Execution:
    """How a build or change is carried out, which has no influence on its result: the number of ``threads``
    and the observer of its ``progress``.
    """

    threads: int = 1
    progress: Progress = field(default_factory=Silent)
