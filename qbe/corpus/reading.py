"""How a corpus is read: its format, what of it is kept, and what is done with records that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cached_property
from typing import Any

from qbe.corpus.revisions import Revisions
from qbe.errors import UsageError

STOP, SKIP = "stop", "skip"
ON_ERROR = (STOP, SKIP)
SKIP_BYTES = 256 << 20
DEDUPE = ("title", "doi")
FIELDS = (
    *("id", "title", "abstract", "year", "date", "authors"),
    *("venue", "categories", "tags", "doi", "url", "cites"),
)
"""The fields of a table that ``columns`` may name."""


@dataclass(frozen=True)
class Reading:
    """How a corpus is read.

    ``format`` is a name of `qbe.corpus.formats.FORMATS`; None: each file's own is recognized. ``columns``
    says for fields of papers (FIELDS) which column of a table holds them. Of papers with categories only
    those are kept of which one matches one of ``categories``, patterns such as ``cs.*``.

    ``on_error`` says what happens at a record that cannot be used: ``stop`` ends with an error that names it,
    ``skip`` leaves it out; None: ``skip`` for files of more than SKIP_BYTES together, else ``stop``. At the
    end it is an error where more than the share ``max_rejected`` of at least 100 records could not be used;
    papers that merely lack an abstract do not count. With ``keep_without_abstract`` such a paper is kept, and
    its title stands for its abstract. ``dedupe`` merges a paper into one before it that has its normalized
    title, year and first author (``title``), or its DOI (``doi``). Reading ends after ``limit`` papers.
    ``revisions`` is not for callers: `qbe.corpus.read` notes newer versions of papers there, in a first pass.

    Raises UsageError for values that are not possible.

    >>> Reading(categories=("cs.*",)).keeps({"categories": ["math.CO", "cs.CG"]})
    True
    >>> Reading(limit=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `limit` of at least 1, found 0
    """

    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    on_error: str | None = None
    max_rejected: float = 0.01
    keep_without_abstract: bool = False
    dedupe: str | None = None
    limit: int | None = None
    revisions: Revisions | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raise UsageError for values that are not possible."""
        for name, value, values in (
            ("on_error", self.on_error, ON_ERROR),
            ("dedupe", self.dedupe, DEDUPE),
        ):
            if value is not None and value not in values:
                raise UsageError(f"expected `{name}` of {', '.join(values)}, found {value!r}")
        if unknown := sorted(set(self.columns) - set(FIELDS)):
            raise UsageError(f"expected `columns` for {', '.join(FIELDS)}, found {unknown[0]!r}; rename it")
        if not 0 <= self.max_rejected <= 1:
            raise UsageError(f"expected `max_rejected` from 0 to 1, found {self.max_rejected:g}")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"expected `limit` of at least 1, found {self.limit}")

    @cached_property
    def _category(self) -> re.Pattern[str] | None:
        patterns = [translate(pattern) for pattern in self.categories]
        return re.compile("|".join(patterns)) if patterns else None

    def with_revisions(self, revisions: Revisions) -> Reading:
        """The same reading with what a first pass noted; nobody else is to give it."""
        reading = replace(self)
        object.__setattr__(reading, "revisions", revisions)
        return reading

    def keeps(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a paper of this metadata has one of the categories that are wanted, or all are."""
        if self._category is None:
            return True
        categories = metadata.get("categories") or ()
        names = categories.split() if isinstance(categories, str) else categories
        return any(self._category.match(str(name)) for name in names)

    def record(self) -> dict[str, Any]:
        """What shapes the papers that are read, as JSON values; values that are the default are left out.

        >>> Reading(categories=("cs.*",), on_error="skip").record()
        {'categories': ['cs.*'], 'on_error': 'skip'}
        """
        values = {
            "format": self.format,
            "columns": dict(self.columns),
            "categories": list(self.categories),
            "on_error": self.on_error,
            "max_rejected": None if self.max_rejected == Reading.max_rejected else self.max_rejected,
            "keep_without_abstract": self.keep_without_abstract,
            "dedupe": self.dedupe,
            "limit": self.limit,
        }
        return {name: value for name, value in values.items() if value}
