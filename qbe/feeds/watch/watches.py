"""Watches: searches that are kept in a file, with what is known of the papers that came since.

The file has one list of the ids of all papers that were ever seen in the index, in the order in which they
came (`Watches.known`), and of each watch how many of them it has seen, `Watch.seen`: the papers behind that
are new for it. So

- a paper is new because its id is, whatever its year says: one that is added late is not missed;
- ids stay in the list when papers leave the index: one that is replaced by another version, or comes back,
  or is in an index that was built anew in place of this one, is not new again;
- a watch whose search fails keeps its number, and another time sees the same papers; one with too many papers
  that are not reported goes on only as far as it has room, and sees the rest once they are;
- what is found and the number are written together, the file being replaced in one step: an interrupted run
  has either found its papers or will find them;
- what was found stays `Found.reported` = False until the report is written: a report that fails is written
  by the next run, and so is a paper that had left the index by then, once it is back. (Where the process
  dies after the last byte of a report and before the file is replaced, the next run writes the same report
  again: to a file the same bytes, on standard output a second time.)

An index in which the same papers have other ids has only new papers.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qbe.errors import FileFormatError, UsageError, input_error
from qbe.serve.service.requests import SearchBody
from qbe.util.files import StrPath, change_lock, write_text
from qbe.util.text import one_line

VERSION = 1
LONGEST_NAME, MOST_WATCHES = 100, 1000
KEPT = 1000
"""Papers of a watch that stay in the file once they are reported, the newest."""

MOST_WAITING, MOST_OF_ONE = 100_000, 10_000
"""Papers of all watches, and of one, that may wait for their report; further ones stay new until then."""

MOST_SEARCH_BYTES = 16 << 20
"""Of the searches of all watches."""

GRADE, EXPLORATION_GRADE = 1.0, 0.5
"""The least grade of what is reported where none is given; what must differ counts against an exploration."""

_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


@dataclass(slots=True)
class Found:
    """A paper that a watch found: its ``grade`` from 0 to 3, when it was ``found`` (UTC), and whether that
    was ``reported``.
    """

    paper_id: str
    grade: float
    found: str
    reported: bool = False


@dataclass(slots=True)
class Watch:
    """A search that is kept: the fields of a `qbe.serve.service.requests.SearchBody`, those that are given, or
    the path of a bibliography, ``cited``, whose papers of the index take the place of ``paper_ids``.

    Papers of at least ``grade`` are found; the first ``seen`` of the known papers are not new for it.
    """

    name: str
    search: Mapping[str, Any]
    grade: float
    cited: str = ""
    seen: int = 0
    found: list[Found] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise UsageError for a name or a grade that is none."""
        self.name = one_line(self.name).strip()
        if not 0 < len(self.name) <= LONGEST_NAME:
            raise UsageError(
                f"expected a name of 1 to {LONGEST_NAME} characters for a watch, found {len(self.name)}"
            )
        if not 0 <= self.grade <= 3:
            raise UsageError(f"expected a `grade` from 0 to 3, found {self.grade:g}")

    @property
    def waiting(self) -> int:
        """How many papers wait for their report."""
        return sum(not each.reported for each in self.found)

    def keep(self, found: list[Found]) -> None:
        """Add what was found; of what is reported the newest stay."""
        self.found += found
        spare = len(self.found) - KEPT
        if spare > 0:
            kept = [each for place, each in enumerate(self.found) if place >= spare or not each.reported]
            self.found = kept


def watch_of(name: str, body: SearchBody, grade: float | None = None) -> Watch:
    """A watch of a search; its page, its ``exclude`` and its ``diversity`` do not count. Raises UsageError
    for a mixed list and for bounds of grades.

    >>> watch_of("fish", SearchBody(paper_ids=["s036"], like=["background"], unlike=["method"])).grade
    0.5
    """
    if body.variety.mix or body.variety.bounds:
        raise UsageError("expected facets or one shape as `like`, found a mix, or grades; give a `grade`")
    shown = {"k", "start", "exclude", "rerank", "first_stage", "diversity"}
    search = body.model_dump(exclude_defaults=True, exclude=shown)
    aspects = body.aspects
    differs = isinstance(aspects, Mapping) and min(aspects.values()) < 0
    usual = EXPLORATION_GRADE if differs else GRADE
    return Watch(name, search, usual if grade is None else grade)


@dataclass(slots=True)
class Watches:
    """The content of a file of watches: they by name, and the ids of ``known`` papers, as they came.

    ``feed`` is the permanent id of the feed that is made of it.
    """

    watches: dict[str, Watch] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)
    feed: str = field(default_factory=lambda: uuid.uuid4().urn)

    def add(self, watch: Watch) -> None:
        """Add a watch for which all known papers are old; raises UsageError for a name that is taken, and
        where there is no room for it.
        """
        if watch.name in self.watches:
            raise UsageError(
                f"expected another name than {watch.name!r}, which a watch has; choose one, or remove that "
                "watch"
            )
        if len(self.watches) == MOST_WATCHES:
            raise UsageError(f"expected at most {MOST_WATCHES} watches; remove some")
        searches = [each.search for each in (*self.watches.values(), watch)]
        if len(json.dumps(searches)) > MOST_SEARCH_BYTES:
            raise UsageError(
                f"expected searches of at most {MOST_SEARCH_BYTES >> 20} MiB in all watches; remove some"
            )
        if self.room() <= 0:
            raise UsageError(full())
        watch.seen = len(self.known)
        self.watches[watch.name] = watch

    def remove(self, name: str) -> None:
        """Remove a watch; raises UsageError where there is none of that name."""
        self.check_name(name)
        del self.watches[name]

    def check_name(self, name: str) -> None:
        """Raise UsageError where there is no watch of that name."""
        if name not in self.watches:
            raise UsageError(f"expected the name of a watch, found {name!r}; there are {self.names()}")

    def room(self) -> int:
        """How many papers more may wait for their report."""
        return MOST_WAITING - sum(each.waiting for each in self.watches.values())

    def names(self) -> str:
        """The names, in a message."""
        return ", ".join(map(repr, self.watches)) or "none"


def full() -> str:
    """The message where no more papers may wait for their report."""
    return (
        f"expected at most {MOST_OF_ONE:,} papers of a watch and {MOST_WAITING:,} of all that are not "
        "reported yet, found more; report them with qbe watch run, or remove watches"
    )


def check_since(since: str | None) -> None:
    """Raise UsageError for another text than a day, as text of which times are compared; None is none.

    >>> check_since("20.11.2026")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected a `since` such as 2026-11-20 (YYYY-MM-DD), found '20.11.2026'
    """
    if since is not None and not _DAY.fullmatch(since):
        raise UsageError(f"expected a `since` such as 2026-11-20 (YYYY-MM-DD), found {since!r}")


def read_watches(path: StrPath) -> Watches:
    """The watches of a file; none where it does not exist. Raises InputError, FileFormatError."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except OSError as error:
        raise input_error(path, error) from error
    except UnicodeDecodeError:
        raise _no_watches(path, "no text") from None
    if not text:
        return Watches()
    try:
        record = json.loads(text)
        if record["qbe_watches"] != VERSION:
            raise _no_watches(path, f"version {record['qbe_watches']!r}")
        watches = [
            Watch(**{**each, "found": [Found(**one) for one in each["found"]]}) for each in record["watches"]
        ]
        for watch in watches:
            SearchBody.model_validate(
                watch.search if not watch.cited else {**watch.search, "paper_ids": ["id"]}
            )
        return Watches({watch.name: watch for watch in watches}, record["known"], record["feed"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_watches(path, f"another content ({type(error).__name__})") from None


def _no_watches(path: Path, actual: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: expected watches of version {VERSION}, as qbe watch writes them, found {actual}; choose "
        "another file"
    )


@contextlib.contextmanager
def changing(path: StrPath) -> Iterator[Watches]:
    """The watches of a file, while no other process or thread changes them; `write_watches` writes them.

    Raises what `read_watches` does, OutputError where others change them for longer than a minute.
    """
    with change_lock(path):
        yield read_watches(path)


def write_watches(path: StrPath, watches: Watches) -> None:
    """Replace a file in one step; within `changing` alone. Raises OutputError."""
    record = {
        "qbe_watches": VERSION,
        "feed": watches.feed,
        "watches": [asdict(watch) for watch in watches.watches.values()],
        "known": watches.known,
    }
    write_text(path, json.dumps(record, ensure_ascii=False) + "\n")


def now() -> str:
    """The time in UTC, to the second, as of 2026-11-25T08:00:00Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
