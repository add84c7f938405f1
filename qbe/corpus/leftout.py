"""What was left out of a corpus, and why: counted by reason, and written down record by record."""

from __future__ import annotations

import json
from collections import Counter
from typing import IO

from qbe.corpus.record import NO_ABSTRACT
from qbe.errors import CorpusError, RecordError

RENAMED = "renamed"
"""What a count is called of papers that are kept by another id than their key."""

SUFFIX = ".rejected.jsonl"
"""Of the file beside an index that lists what was left out."""


class LeftOut:
    """Records that were left out of a corpus.

    ``skipped`` counts those that cannot be used, by the reason of their errors; ``merged`` those that are
    another paper's duplicates; ``renamed`` the papers that are kept by another id, since theirs is another
    paper's. With a ``stream``, each is a line of JSON there: ``where``, ``reason`` and ``message``.

    >>> left_out = LeftOut()
    >>> left_out.skip("a.csv, row 3", RecordError("a.csv, row 3: expected a title, found none", "no title"))
    >>> left_out.summary()
    '1 record skipped (no title: 1)'
    """

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self.skipped: Counter[str] = Counter()
        self.merged = self.renamed = 0
        self._stream = stream

    def __bool__(self) -> bool:
        return bool(self.skipped or self.merged or self.renamed)

    def skip(self, where: str, error: RecordError) -> None:
        """Count a record that cannot be used."""
        self.skipped[error.reason] += 1
        self._write(where, error.reason, str(error))

    def merge(self, where: str, paper_id: str, first: str, by: str) -> None:
        """Count a paper that is left out as a duplicate of the paper ``first``, by what both have."""
        self.merged += 1
        self._write(where, "duplicate", f"{where}: {paper_id!r} has the {by} of {first!r}, which is kept")

    def rename(self, where: str, key: str, paper_id: str) -> None:
        """Count a paper whose key is that of another paper, and which has the id ``paper_id`` instead."""
        self.renamed += 1
        message = f"{where}: the id {key!r} is that of another paper before; this one is called {paper_id!r}"
        self._write(where, RENAMED, message)

    def _write(self, where: str, reason: str, message: str) -> None:
        if self._stream is not None:
            line = {"where": where, "reason": reason, "message": message}
            self._stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    @property
    def broken(self) -> int:
        """The number of records that cannot be used; papers that merely lack an abstract do not count."""
        return sum(self.skipped.values()) - self.skipped[NO_ABSTRACT]

    def check(self, max_rejected: float, kept: int) -> None:
        """Raise CorpusError where more than the share ``max_rejected`` of the records cannot be used, beside
        ``kept`` papers.
        """
        total = kept + sum(self.skipped.values()) + self.merged
        if self.broken > max_rejected * total:
            raise CorpusError(
                f"expected at most {max_rejected:.3g} of the records to be unusable, found {self.broken:,} "
                f"of {total:,} ({self.reasons()}); mend them, or raise `max_rejected`"
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
        if self.renamed:
            parts.append(f"{self.renamed:,} kept by another id, since theirs occurs twice")
        return ", ".join(parts)

    def counts(self) -> dict[str, int]:
        """The counts by reason, those of duplicates and RENAMED ones among them, as JSON values."""
        counts = {**dict(self.skipped.most_common()), "duplicate": self.merged, RENAMED: self.renamed}
        return {reason: count for reason, count in counts.items() if count}
