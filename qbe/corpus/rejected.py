"""Rejected records of a corpus: counted by reason, and listed one by one."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import IO

from qbe.corpus.head import NOT_RECOGNIZED
from qbe.corpus.record import NO_ABSTRACT
from qbe.errors import CorpusError, RecordError

RENAMED, RECODED = "papers kept by another id", "files not in UTF-8"
KEPT = "papers that the index has with other content"
STANDS_IN = "papers by a paragraph in place of an abstract"
NOTED = (RENAMED, RECODED, KEPT, STANDS_IN)
"""What is noted, and nothing left out."""

FEWEST = 100
"""Of fewer records any share may be broken: it is reported, and for a person to judge."""

SUFFIX = ".rejected.jsonl"
"""Of the file next to an index that lists them."""


class RejectedRecords:
    """Records of a corpus that were not used, or not as they are.

    ``skipped`` counts those that cannot be used, by the reason of their errors; ``merged`` those that are
    another paper's duplicates; ``noted`` notes on others, by NOTED. ``deleted`` has the ids of
    papers that the sources say are deleted, ``ids`` those of skipped records, as far as these tell them. With
    a ``stream``, each record is a line of JSON there: ``where``, ``reason`` and ``message``.

    >>> rejected = RejectedRecords()
    >>> rejected.skip("a.csv, row 3", RecordError("a.csv, row 3: expected a title, found none", "no title"))
    >>> rejected.summary()
    '1 record skipped (no title: 1)'
    """

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self.skipped: Counter[str] = Counter()
        self.merged = 0
        self.noted: Counter[str] = Counter()
        self.deleted: frozenset[str] = frozenset()
        self.ids: set[str] = set()
        self._named = 0  # broken records that tell their ids
        self._harmless = 0  # skipped records of which nothing is broken
        self._stream = stream

    def __bool__(self) -> bool:
        return bool(self.skipped or self.merged or self.noted)

    def skip(self, where: str, error: RecordError, paper_id: str | None = None) -> None:
        """Count a record that cannot be used, of that id where it tells one."""
        self.skipped[error.reason] += 1
        is_harmless = error.reason in (NO_ABSTRACT, NOT_RECOGNIZED) or not error.is_fault
        self._harmless += is_harmless
        if paper_id is not None:
            self.ids.add(paper_id)
            self._named += not is_harmless
        self._write(where, error.reason, str(error))

    def merge(self, where: str, paper_id: str, first: str, by: str | None, place: str) -> None:
        """Count a paper that is left out as a duplicate of the paper ``first``, by what both have; ``place``
        says where that one occurred.
        """
        self.merged += 1
        same = f"{paper_id!r} has the {by} of {first!r}" if by else f"{first!r} was there before"
        same += f" ({place})"
        self._write(where, "duplicate", f"{where}: {same}, which is kept")

    def note(self, kind: str, where: str, message: str) -> None:
        """Count a note on a paper or a file that is used; ``kind`` is one of NOTED."""
        self.noted[kind] += 1
        self._write(where, kind, f"{where}: {message}")

    def _write(self, where: str, reason: str, message: str) -> None:
        if self._stream is not None:
            line = {"where": where, "reason": reason, "message": message}
            self._stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")

    @property
    def broken(self) -> int:
        """The number of records that cannot be used; papers that merely lack an abstract, what is no fault,
        and files of other formats do not count.
        """
        return sum(self.skipped.values()) - self._harmless

    @property
    def nameless(self) -> int:
        """How many of the `broken` records do not tell their ids."""
        return self.broken - self._named

    def check(self, max_rejected: float, kept: int) -> None:
        """Raise CorpusError where of at least FEWEST records more than the share ``max_rejected`` cannot be
        used; ``kept`` is the number of papers.
        """
        total = kept + sum(self.skipped.values()) + self.merged
        if self.broken > max_rejected * total and total >= FEWEST:
            raise CorpusError(
                f"{self.broken:,} of {total:,} records are broken ({self.reasons()}), expected at most "
                f"{100 * max_rejected:.3g} %; mend them, or accept them with `max_rejected` "
                f"{math.ceil(1000 * self.broken / total) / 1000:g}"
            )

    def reasons(self) -> str:
        """The counts by reason, the most frequent first."""
        return ", ".join(f"{reason}: {count:,}" for reason, count in self.skipped.most_common())

    def summary(self) -> str:
        """What was left out, in one line; empty where nothing was."""
        parts = []
        if total := sum(self.skipped.values()):
            noun = "record" if total == 1 else "records"
            parts.append(f"{total:,} {noun} skipped ({self.reasons()})")
        if self.merged:
            parts.append(f"{self.merged:,} merged as duplicates")
        parts.extend(f"{reason}: {count:,}" for reason, count in self.noted.items())
        return ", ".join(parts)

    def counts(self) -> dict[str, int]:
        """The counts by reason, with those of duplicates and notes, as JSON values."""
        duplicates = {"duplicate": self.merged} if self.merged else {}
        return {**dict(self.skipped.most_common()), **duplicates, **self.noted}
