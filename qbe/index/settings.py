"""What is asked of a build."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from qbe.models.registry import DEFAULT_ENCODER


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What is built from which corpus; a resumed build must have the same settings, threads aside."""

    corpus: tuple[str, ...]
    bm25: bool = True
    dense: bool = True
    encoder: str = DEFAULT_ENCODER
    precision: str = "int8"
    positions: bool = False
    docvectors: bool = False
    threads: int = 1

    def record(self) -> dict[str, Any]:
        """The settings as an index's manifest holds them: all that shapes it."""
        record = dataclasses.asdict(self)
        del record["threads"]
        return {**record, "corpus": list(self.corpus)}
