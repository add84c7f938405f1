"""Settings of a build, and how it is carried out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qbe.errors import UsageError
from qbe.index.building.progress import Progress, Silent
from qbe.index.building.timings import Timings
from qbe.index.dense.ann import AUTO, STORED, AnnSettings
from qbe.models.encoder_files import PRECISIONS
from qbe.models.registry import DEFAULT_ENCODER, DEFAULT_TAGGER
from qbe.models.session import CPU, DEVICES


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What shapes an index, its corpus apart; a resumed build must have the same settings.

    ``bm25`` and ``dense`` say whether it has Lucene postings and vectors. ``encoder`` and ``tagger`` are
    names or folders, ``precision`` (``int8`` or ``fp32``) is the encoder's, and ``device``, one of
    `qbe.models.session.DEVICES`, runs it.

    ``facets`` says whose labels an index with vectors holds: with ``given`` those that the corpus brings, and
    the ``tagger``'s for papers without; with ``predicted`` the tagger's for all papers. Without vectors
    nothing is tagged, and given labels are kept. ``positions`` and ``docvectors`` store term positions and
    vectors in Lucene. ``ann`` says which FAISS index finds candidates, ``stored`` how vectors are stored (one
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
    ann: AnnSettings = field(default_factory=AnnSettings)
    stored: str = AUTO
    device: str = CPU

    def __post_init__(self) -> None:
        """Raise TypeError for values of other types, UsageError for ones that are not possible."""
        for name in ("encoder", "precision", "facets", "tagger", "stored", "device"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"expected `{name}` as a str, found {type(value).__name__}")
        if not isinstance(self.ann, AnnSettings):
            raise TypeError(f"expected `ann` as qbe's AnnSettings, found {type(self.ann).__name__}")
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
        """The settings of a manifest, with changes."""
        settings = {name: value for name, value in record.items() if name != "corpus"}
        return cls(**{**settings, "ann": AnnSettings(**record.get("ann", {})), **changes})


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
