"""Watches: searches that are kept in a file, and the papers that are new for them, each found once.

The file has the ids of all papers that were ever seen in the index, in the order in which they came
(`Watches.known`), and for each watch how many of them it has seen (`Watch.seen`); the papers behind that are
new for it. So

- a paper is new because its id is, whatever its year says;
- ids stay in the list when papers leave the index, so that another version of a paper, or a rebuilt index
  with the same ids, brings nothing twice;
- a watch whose search fails keeps its number and sees the same papers the next time, as does one that has no
  room for all;
- findings and numbers are written together, the file being replaced in one step;
- a finding stays unreported until its report is written: a report that fails is written by the next run.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import FileFormatError, QbeError, UsageError, input_error
from qbe.index.index import Index
from qbe.query import HIGHEST
from qbe.search.form import MAX_PAPERS, SearchForm, distinct_papers
from qbe.search.grading import no_grades
from qbe.search.queries import papers_of
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Dense, Stages
from qbe.types import Facet, Hit
from qbe.util.files import StrPath, change_lock, write_text
from qbe.util.text import one_line

VERSION = 1
MAX_WATCH_NAME, MAX_WATCHES = 100, 1000
MAX_ID = 300
KEPT = 1000
"""Reported papers of a watch that stay in the file, the newest."""

MAX_WAITING, MAX_OF_ONE = 100_000, 10_000
"""Papers of all watches, and of one, that may wait for their report; further ones stay new until then."""

MAX_SEARCH_BYTES = 16 << 20
"""Of the searches of all watches."""

GRADE, EXPLORATION_GRADE = 1.0, 0.5
"""The default least grade of what is reported; what must differ counts against an exploration."""

TOGETHER, SEARCHES = 500, 25
"""How many new papers are graded together, for how many watches."""

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
    """A search that is kept: the fields of a `qbe.search.form.SearchForm` that differ from their defaults, or
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
        self.name = one_line(self.name).strip()
        if not 0 < len(self.name) <= MAX_WATCH_NAME:
            raise UsageError(
                f"expected a name of 1 to {MAX_WATCH_NAME} characters for a watch, found {len(self.name)}"
            )
        if not 0 <= self.grade <= HIGHEST:
            raise UsageError(f"expected a `grade` from 0 to 3, found {self.grade:g}")

    @property
    def waiting(self) -> int:
        """How many papers wait for their report."""
        return sum(not each.reported for each in self.found)

    def keep(self, found: list[Found]) -> None:
        """Add findings; of what is reported the newest stay."""
        self.found += found
        spare = len(self.found) - KEPT
        if spare > 0:
            kept = [each for place, each in enumerate(self.found) if place >= spare or not each.reported]
            self.found = kept

    def forms(self, index: Index) -> Iterator[SearchForm]:
        """Its searches: of a bibliography as many as its papers need."""
        if not self.cited:
            yield SearchForm(**self.search)
            return
        with index.reading() as reader:
            named = papers_of(reader, Path(self.cited)).paper_ids
        for begin in range(0, len(named), MAX_PAPERS):
            yield SearchForm(**{**self.search, "paper_ids": named[begin : begin + MAX_PAPERS]})


def watch_of(name: str, form: SearchForm, grade: float | None = None) -> Watch:
    """A watch of a search; its page, its ``exclude`` and its ``diversity`` do not count. Raises UsageError
    for a mixed list and for bounds of grades.

    >>> watch_of("fish", SearchForm(paper_ids=["s036"], like=["background"], unlike=["method"])).grade
    0.5
    """
    if form.variety.mix or form.variety.bounds:
        raise UsageError("expected facets or one shape as `like`, found a mix, or grades; give a `grade`")
    shown = {"k", "start", "exclude", "rerank", "first_stage", "diversity"}
    search = {name: value for name, value in form.record().items() if name not in shown}
    aspects = form.aspects
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
        """Add a watch for which all known papers are old; UsageError for a taken name or without room."""
        if watch.name in self.watches:
            raise UsageError(
                f"expected another name than {watch.name!r}, which a watch has; choose one, or remove that "
                "watch"
            )
        if len(self.watches) == MAX_WATCHES:
            raise UsageError(f"expected at most {MAX_WATCHES} watches; remove some")
        searches = [each.search for each in (*self.watches.values(), watch)]
        if len(json.dumps(searches)) > MAX_SEARCH_BYTES:
            raise UsageError(
                f"expected searches of at most {MAX_SEARCH_BYTES >> 20} MiB in all watches; remove some"
            )
        if self.room() <= 0:
            raise UsageError(_full())
        watch.seen = len(self.known)
        self.watches[watch.name] = watch

    def remove(self, name: str) -> None:
        self.check_name(name)
        del self.watches[name]

    def check_name(self, name: str) -> None:
        """Raise UsageError where there is no watch of that name."""
        if name not in self.watches:
            names = ", ".join(map(repr, self.watches)) or "none"
            raise UsageError(f"expected the name of a watch, found {name!r}; there are {names}")

    def room(self) -> int:
        """How many papers more may wait for their report."""
        return MAX_WAITING - sum(each.waiting for each in self.watches.values())

    def note(self, index: Index) -> None:
        """Add the papers of an index that are not known yet, in its order."""
        known = set(self.known)
        with index.reading() as reader:
            self.known += [paper_id for paper_id in reader.papers.ids if paper_id not in known]


def _full() -> str:
    return (
        f"expected at most {MAX_OF_ONE:,} papers of a watch and {MAX_WAITING:,} of all that are not "
        "reported yet, found more; report them with qbe watch run, or remove watches"
    )


def check_since(since: str | None) -> None:
    """Validate a date YYYY-MM-DD; times are compared as text.

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
    found = "another content"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if not text:
            return Watches()
        record = json.loads(text)
        if record["qbe_watches"] != VERSION:
            found = f"version {record['qbe_watches']!r}"
            raise ValueError
        watches = [
            Watch(**{**each, "found": [Found(**one) for one in each["found"]]}) for each in record["watches"]
        ]
        for watch in watches:
            _ = SearchForm(**{**watch.search, **({"paper_ids": ["id"]} if watch.cited else {})})
        return Watches({watch.name: watch for watch in watches}, record["known"], record["feed"])
    except OSError as error:
        raise input_error(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError):
        raise FileFormatError(
            f"{path}: expected watches of version {VERSION}, as qbe watch writes them, found {found}; choose "
            "another file"
        ) from None


@contextlib.contextmanager
def changing(path: StrPath) -> Iterator[Watches]:
    """The watches of a file, locked: OutputError where others change them for longer than a minute."""
    with change_lock(path):
        yield read_watches(path)


def write_watches(path: StrPath, watches: Watches) -> None:
    """Replace a file in one step; within `changing` alone."""
    record = {
        "qbe_watches": VERSION,
        "feed": watches.feed,
        "watches": [asdict(watch) for watch in watches.watches.values()],
        "known": watches.known,
    }
    write_text(path, json.dumps(record, ensure_ascii=False) + "\n")


# Finding


def watch_session(index: Index) -> SearchSession:
    """A session without Java and rerankers; raises UsageError for an index without grades."""
    session = SearchSession(index, Stages(Dense()))
    if session.can_grade:
        return session
    session.close()
    raise no_grades()


def keep(watches: Watches, watch: Watch, session: SearchSession) -> dict[str, QbeError]:
    """Add a watch, for which all papers of the index are old, after the others found what is new for them.
    The papers of its search are kept by id: another name may later name others. Returns what `find` does.
    """
    for name in ("paper_ids", "not_paper_ids"):
        if names := watch.search.get(name):
            ids = [paper.paper_id for paper in distinct_papers(session.index, names)]
            if max(map(len, ids)) <= MAX_ID:
                watch.search = {**watch.search, name: ids}
    for form in watch.forms(session.index):
        session.prepared([form.request(session.index)])
    problems = find(watches, session)
    watches.add(watch)
    return problems


def find(
    watches: Watches, session: SearchSession, advance: Callable[[int], object] = lambda _: None
) -> dict[str, QbeError]:
    """Add to each watch what it finds among the papers that are new for it, best first.

    All new papers of the newest generation are graded by stored vectors, and the filter of the search holds;
    nothing else is searched. Returns what went wrong, by the name of the watch, whose new papers then stay
    new. ``session`` is that of `watch_session`; ``advance`` is called with 1 for each watch.
    """
    session.index.refresh()  # no other process may have noted papers that this one does not see
    watches.note(session.index)
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    problems: dict[str, QbeError] = {}
    room = watches.room()
    every = list(watches.watches.values())
    for some in (every[begin : begin + SEARCHES] for begin in range(0, len(every), SEARCHES)):
        searching = [
            watch
            for watch in some
            if watch.seen < len(watches.known) and room > 0 and watch.waiting < MAX_OF_ONE
        ]
        grades = _graded(searching, watches.known, session, problems)
        for watch in some:
            advance(1)
            if watch.name in problems:
                continue
            new, graded = watches.known[watch.seen :], grades.get(watch.name, {})
            most = max(0, min(room, MAX_OF_ONE - watch.waiting))
            found = [paper_id for paper_id in new if graded.get(paper_id, -1.0) >= watch.grade]
            if len(found) > most or (new and not most):  # those behind what there is room for stay new
                problems[watch.name] = QbeError(_full())
                new = new[: new.index(found[most])] if most else []
            found = found[:most]
            best = sorted(found, key=lambda paper_id: (-graded[paper_id], paper_id))
            watch.keep([Found(paper_id, graded[paper_id], time) for paper_id in best])
            watch.seen += len(new)
            room -= len(found)
    return problems


class _Search(NamedTuple):
    watch: Watch
    form: SearchForm
    request: SearchRequest


def _graded(
    watches: Sequence[Watch], known: Sequence[str], session: SearchSession, problems: dict[str, QbeError]
) -> dict[str, dict[str, float]]:
    """For each watch, by its name, its papers with their grades: of those that are new for it, are in the
    index and may be found. What goes wrong with one is noted.
    """
    index, searches = session.index, list[_Search]()
    for watch in watches:
        try:
            searches += [_Search(watch, form, form.request(index)) for form in watch.forms(index)]
        except QbeError as error:
            problems[watch.name] = error
    grades: dict[str, dict[str, float]] = {watch.name: {} for watch in watches}
    first = min((each.watch.seen for each in searches), default=len(known))
    for begin in range(first, len(known), TOGETHER):
        pool = [paper_id for paper_id in known[begin : begin + TOGETHER] if paper_id in index]
        some = [
            each
            for each in searches
            if each.watch.seen < begin + TOGETHER and each.watch.name not in problems and pool
        ]
        for (watch, form, _), hits in zip(some, _found(some, pool, session), strict=True):
            if isinstance(hits, QbeError):
                problems[watch.name] = hits
                continue
            graded = grades[watch.name]
            for hit in hits:
                if (grade := grade_of(form, hit)) >= watch.grade:
                    graded[hit.paper_id] = max(grade, graded.get(hit.paper_id, 0.0))
    for watch, _, request in searches:
        for paper in request.query.papers:
            grades[watch.name].pop(paper.paper_id, None)
    return grades


def _found(
    searches: Sequence[_Search], pool: Sequence[str], session: SearchSession
) -> list[Sequence[Hit] | QbeError]:
    """The hits of searches among the papers of a pool; one by one where something is wrong with any."""
    requests = [
        SearchRequest(each.query, len(pool), pool, each.filter, matches=False, grades=True)
        for _, _, each in searches
    ]
    try:
        return [ranking.hits for ranking in session.batch(requests, rerank=False)]
    except QbeError as error:
        if len(searches) == 1:
            return [error]
        return [found for each in searches for found in _found([each], pool, session)]


def grade_of(form: SearchForm, hit: Hit) -> float:
    """The grade of a hit, from 0 to 3: of a search by a facet in this facet, of an exploration three times
    the chance of being as asked, of other searches the highest of all facets.

    >>> grade_of(SearchForm(paper_ids=["s036"]), Hit("s051", 0.5, grades={"method": 1.5, "result": 0.75}))
    1.5
    """
    aspects, grades = form.aspects, hit.grades or {}
    if isinstance(aspects, Mapping):
        return round(HIGHEST * float(hit.score), 4)
    return grades.get(str(aspects), 0.0) if isinstance(aspects, Facet) else max(grades.values(), default=0.0)
