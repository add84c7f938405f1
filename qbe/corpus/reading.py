"""How a corpus is read: its format, what of it is kept, and what is done with records that cannot be used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import translate
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from qbe.errors import RecordError, UsageError

Original = TypeVar("Original")


STOP, SKIP = "stop", "skip"
ON_ERROR = (STOP, SKIP)
SKIP_BYTES = 256 << 20
DEDUPE = ("title", "doi")
FIELDS = (
    *("id", "title", "abstract", "year", "date", "authors"),
    *("venue", "categories", "tags", "doi", "url", "cites"),
)
"""The fields of a table that ``columns`` may name."""


class Entry(NamedTuple):
    """A record of a source, or what is wrong with it.

    ``where`` is its place (file and line, or file and number), with which every message about it begins.
    ``record`` has the fields of `qbe.corpus.record`, with ``abstract`` None where there is none.

    >>> Entry("papers.csv, line 2", {"paper_id": "1", "title": "On fish", "abstract": "Fish swim."}).where
    'papers.csv, line 2'
    """

    where: str
    record: Mapping[str, Any] | RecordError


def converted(
    originals: Iterable[tuple[str, Original | RecordError]],
    to_record: Callable[[Original, str], dict[str, Any] | None],
    reading: Reading | None = None,
) -> Iterator[Entry]:
    """The entries of records of another format, each of which is given with its place.

    ``to_record`` makes the record of an entry from such a record and its place. What it raises as RecordError
    becomes the entry, and so does a RecordError in place of an original. Left out is that of which it makes
    None, and with ``reading`` a paper with none of the chosen categories.

    >>> def to_record(title: str, where: str) -> dict[str, Any]:
    ...     if not title:
    ...         raise RecordError(f"{where}: expected a title, found none; add it", "no title")
    ...     return {"paper_id": where[-1], "title": title, "abstract": None, "metadata": {}}
    >>> for entry in converted([("titles, line 1", "On fish"), ("titles, line 2", "")], to_record):
    ...     print(entry.record)
    {'paper_id': '1', 'title': 'On fish', 'abstract': None, 'metadata': {}}
    titles, line 2: expected a title, found none; add it
    """
    for where, original in originals:
        try:
            if isinstance(original, RecordError):
                raise original
            record = to_record(original, where)
        except RecordError as error:
            yield Entry(where, error)
            continue
        if record is not None and (reading is None or reading.keeps(record["metadata"])):
            yield Entry(where, record)


class Revisions:
    """The newest record of each paper, noted in a first pass over some files and looked up in a second.

    Of records with the highest version the last counts. Of most papers the id and the version are kept until
    the second pass begins, and nothing then.

    >>> revisions = Revisions()
    >>> for paper_id, version in ("7", 1), ("7", 2), ("8", 1):
    ...     revisions.note(paper_id, version)
    >>> revisions.delete("8")
    >>> [revisions.counts("7"), revisions.counts("7"), revisions.counts("8"), revisions.counts("9")]
    [False, True, False, True]
    >>> revisions.deleted
    {'8'}
    """

    def __init__(self) -> None:
        self.deleted: set[str] = set()
        self._versions: dict[str, int] = {}  # the highest of each paper
        self._records: dict[str, tuple[int, int]] = {}  # if not one: how many, and which counts (from 1)
        self._seen: Counter[str] = Counter()

    def note(self, paper_id: str, version: int) -> None:
        """Note the next record of a paper."""
        before = self._versions.get(paper_id)
        if before is not None or paper_id in self.deleted:
            number, newest = self._records.get(paper_id, (1, 1))
            is_newer = before is None or version >= before
            self._records[paper_id] = number + 1, number + 1 if is_newer else newest
        self._versions[paper_id] = max(version, before or 0)
        self.deleted.discard(paper_id)

    def delete(self, paper_id: str) -> None:
        """Note that a paper is deleted, unless it has a record after this."""
        number = self._records[paper_id][0] if paper_id in self._records else int(paper_id in self._versions)
        self._records[paper_id] = number, 0
        self._versions.pop(paper_id, None)
        self.deleted.add(paper_id)

    def counts(self, paper_id: str) -> bool:
        """Whether the next record of a paper, in the second pass, is the one that counts."""
        self._versions.clear()
        if paper_id not in self._records:
            return True
        self._seen[paper_id] += 1
        return self._seen[paper_id] == self._records[paper_id][1]


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
            raise UsageError(f"expected fields {', '.join(FIELDS)}, found {unknown[0]!r}; check `columns`")
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
        """Whether a paper of this metadata has one of the chosen categories, or no category is chosen."""
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
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        values |= {"columns": dict(self.columns), "categories": list(self.categories)}
        if self.max_rejected == Reading.max_rejected:
            values["max_rejected"] = None
        return {name: value for name, value in values.items() if value}
