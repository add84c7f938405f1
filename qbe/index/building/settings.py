"""What is asked of a build."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbe.index.dense.ann import AUTO, AnnSettings
from qbe.models.registry import DEFAULT_ENCODER, DEFAULT_TAGGER
from qbe.models.session import CPU


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What is built from which corpus; a resumed build must have the same settings, threads aside.

    ``device`` is one of `qbe.models.session.DEVICES`: what encodes the papers.

    ``facets`` says whose labels an index with vectors holds: with ``given`` those that the corpus brings, and
    the ``tagger``'s for papers without; with ``predicted`` the tagger's for all papers. Without vectors
    nothing is tagged, and given labels are kept. ``ann`` says which FAISS index finds candidates, ``stored``
    how vectors are stored (one of `qbe.index.dense.ann.STORED`, or by the size of the corpus).
    """

    corpus: tuple[str, ...]
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
    threads: int = 1
    device: str = CPU

    def record(self) -> dict[str, Any]:
        """The settings as an index's manifest holds them: all that shapes it."""
        record = dataclasses.asdict(self)
        del record["threads"]
        if self.device == CPU:  # as in the indexes of the time before there was a choice
            del record["device"]
        return {**record, "corpus": list(self.corpus)}

    @classmethod
    def read(cls, record: Mapping[str, Any], **changes: Any) -> BuildSettings:
        """The settings of a manifest, with changes."""
        ann = AnnSettings(**record.get("ann", {}))
        return cls(**{**record, "corpus": tuple(record["corpus"]), "ann": ann, **changes})
