"""Rejected records of a corpus: counted by reason, and listed one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import IO

from qbe.corpus.records import NO_ABSTRACT, dump_record
from qbe.corpus.streams import NOT_RECOGNIZED
from qbe.errors import CorpusError, RecordError

RENAMED, RECODED = "papers kept by another id", "files not in UTF-8"
KEPT = "papers that the index has with other content"
STANDS_IN = "papers by a paragraph, or their title, in place of an abstract"
NOTED = (RENAMED, RECODED, KEPT, STANDS_IN)
FEWEST = 100  # of fewer records any share may be broken: it is reported, and for a person to judge
SUFFIX = ".rejected.jsonl"  # of the file next to an index that lists them


class RejectedRecords:
    """Count records of a corpus that were not used, or not as they are.

    ``skipped`` counts by the reason of their errors, ``noted`` by NOTED. ``deleted`` has the ids that the
    sources declare deleted, ``ids`` known ids of skipped records. With a ``stream``, each record is a line of
    JSON there: ``where``, ``reason`` and ``message``.
    """

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self.skipped: Counter[str] = Counter()
        self.merged = 0
        self.noted: Counter[str] = Counter()
        self.deleted: frozenset[str] = frozenset()
        self.ids: set[str] = set()
        self.broken = 0  # but for those that lack an abstract, non-papers and other formats
        self.nameless = 0  # the broken records whose ids are not known
        self._stream = stream

    def __bool__(self) -> bool:
        return bool(self.skipped or self.merged or self.noted)

    def skip(self, where: str, error: RecordError, paper_id: str | None = None) -> None:
        """Count a record that cannot be used, of that id where it tells one."""
        self.skipped[error.reason] += 1
        is_broken = error.is_fault and error.reason not in (NO_ABSTRACT, NOT_RECOGNIZED)
        self.broken += is_broken
        if paper_id is None:
            self.nameless += is_broken
        else:
            self.ids.add(paper_id)
        self.note(error.reason, where, str(error))

    def merge(self, where: str, paper_id: str, first: str, by: str | None, place: str) -> None:
        """Count a duplicate of the paper ``first``, which occurred at ``place``; ``by`` is what both have."""
        self.merged += 1
        same = f"{paper_id!r} has the {by} of {first!r}" if by else f"{first!r} was there before"
        self.note("duplicate", where, f"{same} ({place}), which is kept")

    def note(self, kind: str, where: str, message: str) -> None:
        """List what is wrong with a record, a paper or a file; count it if it is one of NOTED."""
        if kind in NOTED:
            self.noted[kind] += 1
        if self._stream is not None:
            message = message if message.startswith(where) else f"{where}: {message}"
            self._stream.write(dump_record({"where": where, "reason": kind, "message": message}))

    def check(self, max_rejected: float, kept: int) -> None:
        """Raise CorpusError where too large a share of at least FEWEST records is broken."""
        total = kept + sum(self.skipped.values()) + self.merged
        if self.broken > max_rejected * total and total >= FEWEST:
            raise CorpusError(
                f"{self.broken:,} of {total:,} records are broken ({self.reasons()}), expected at most "
                f"{100 * max_rejected:.3g} %; mend them, or accept them with `max_rejected` "
                f"{math.ceil(1000 * self.broken / total) / 1000:g}"
            )

    def reasons(self) -> str:
        """Return the counts by reason, the most frequent first."""
        return ", ".join(f"{reason}: {count:,}" for reason, count in self.skipped.most_common())

    def summary(self) -> str:
        """Say what was left out in one line; empty where nothing was."""
        parts = []
        if total := sum(self.skipped.values()):
            noun = "record" if total == 1 else "records"
            parts.append(f"{total:,} {noun} skipped ({self.reasons()})")
        if self.merged:
            parts.append(f"{self.merged:,} merged as duplicates")
        parts.extend(f"{reason}: {count:,}" for reason, count in self.noted.items())
        return ", ".join(parts)

    def counts(self) -> dict[str, int]:
        """Return the counts by reason, with those of duplicates and notes, as JSON values."""
        duplicates = {"duplicate": self.merged} if self.merged else {}
        return {**dict(self.skipped.most_common()), **duplicates, **self.noted}
