"""Watches: searches that are kept in a file, the papers that are new for them, and reports of those.

The file has the ids of all papers that were ever seen in the index, as they came (`Watches.known`), and how
many of them each watch has seen (`Watch.seen`); the papers behind that are new for it. Ids stay when papers
leave the index, so that another version of a paper, or a rebuilt index, brings nothing twice. A watch whose
search fails keeps its number. Findings are written with it, and stay unreported until a report is written.
"""

import contextlib
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from xml.etree import ElementTree

from qbe.corpus.names import ET_AL
from qbe.errors import FileFormatError, QbeError, UsageError, input_error
from qbe.feeds import check_day
from qbe.index.index import Index
from qbe.query import HIGHEST
from qbe.search.grading import no_grades
from qbe.search.present import escaped, line
from qbe.search.queries import distinct_papers, papers_of
from qbe.search.request import MAX_PAPERS, SearchForm, SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Dense, Stages
from qbe.search.writers import described, export_parts
from qbe.types import Facet, Hit, Paper
from qbe.util.files import StrPath, change_lock, write_text
from qbe.util.text import one_line, plain

VERSION = 1
MAX_NAME, MAX_WATCHES = 100, 1000
KEPT = 1000  # reported papers of a watch that stay in the file, the newest
GRADE, EXPLORATION_GRADE = 1.0, 0.5  # the default least grades of what is reported
TOGETHER, SEARCHES = 500, 25  # new papers that are graded together, and for how many watches


@dataclass(slots=True)
class Found:
    """A paper that a watch ``found`` (when, UTC), with its ``grade`` from 0 to 3."""

    paper_id: str
    grade: float
    found: str
    reported: bool = False


@dataclass(slots=True)
class Watch:
    """A search that is kept: a `SearchForm` but for its defaults, or the path of a bibliography, ``cited``.

    Papers of at least ``grade`` are found; the first ``seen`` of the known papers are old for it.
    """

    name: str
    search: Mapping[str, Any]
    grade: float
    cited: str = ""
    seen: int = 0
    found: list[Found] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = one_line(self.name).strip()
        if not 0 < (length := len(self.name)) <= MAX_NAME:
            raise UsageError(f"expected a name of 1 to {MAX_NAME} characters for a watch, found {length}")
        if not 0 <= self.grade <= HIGHEST:
            raise UsageError(f"expected a `grade` from 0 to 3, found {self.grade:g}")

    def forms(self, index: Index) -> list[SearchForm]:
        """Its searches: of a bibliography as many as its papers need."""
        if not self.cited:
            return [SearchForm(**self.search)]
        named = papers_of(index.reader, Path(self.cited)).paper_ids
        parts = (named[begin : begin + MAX_PAPERS] for begin in range(0, len(named), MAX_PAPERS))
        return [SearchForm(**{**self.search, "paper_ids": part}) for part in parts]


def watch_of(name: str, form: SearchForm, grade: float | None = None) -> Watch:
    """Make a watch of a search, but for its page, ``exclude`` and ``diversity``."""
    if form.variety.mix or form.variety.bounds:
        raise UsageError("expected facets or one shape as `like`, found a mix, or grades; give a `grade`")
    shown = {"k", "start", "exclude", "rerank", "first_stage", "diversity"}
    search = {name: value for name, value in form.record().items() if name not in shown}
    differs = isinstance(form.aspects, Mapping) and min(form.aspects.values()) < 0
    return Watch(name, search, (EXPLORATION_GRADE if differs else GRADE) if grade is None else grade)


@dataclass(slots=True)
class Watches:
    """The watches of a file, the ids of ``known`` papers, and the id of the ``feed``."""

    watches: dict[str, Watch] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)
    feed: str = field(default_factory=lambda: uuid.uuid4().urn)

    def add(self, watch: Watch) -> None:
        """Add a watch for which all known papers are old; UsageError for a taken name."""
        if watch.name in self.watches:
            taken = f"expected another name than {watch.name!r}, which a watch has"
            raise UsageError(f"{taken}; choose one, or remove that watch")
        if len(self.watches) == MAX_WATCHES:
            raise UsageError(f"expected at most {MAX_WATCHES} watches; remove some")
        watch.seen = len(self.known)
        self.watches[watch.name] = watch

    def named(self, name: str) -> Watch:
        """Return the watch of a name; raises UsageError where there is none."""
        if watch := self.watches.get(name):
            return watch
        names = ", ".join(map(repr, self.watches)) or "none"
        raise UsageError(f"expected the name of a watch, found {name!r}; there are {names}")


def read_watches(path: StrPath) -> Watches:
    """Read a file of watches; there are none where it does not exist. Raises InputError, FileFormatError."""
    path, found = Path(path), "another content"
    try:
        text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        if not text:
            return Watches()
        record = json.loads(text)
        if record["qbe_watches"] != VERSION:
            found = f"version {record['qbe_watches']!r}"
            raise ValueError
        watches = [
            Watch(**{**each, "found": [Found(**one) for one in each["found"]]}) for each in record["watches"]
        ]
        uuid.UUID(record["feed"])
        for watch in watches:
            form = SearchForm(**{**watch.search, **({"paper_ids": ["id"]} if watch.cited else {})})
            for part in (watch, form, *watch.found):
                kinds = get_type_hints(type(part))
                if wrong := [name for name, kind in kinds.items() if not _is(getattr(part, name), kind)]:
                    raise TypeError(wrong)
        known, by_name = record["known"], {each.name: each for each in watches}
        is_sound = all(0 <= each.grade <= HIGHEST for watch in watches for each in watch.found)
        is_sound &= _is(known, list[str]) and all(0 <= watch.seen <= len(known) for watch in watches)
        if not is_sound or len(by_name) < len(watches):
            raise TypeError
        return Watches(by_name, known, record["feed"])
    except OSError as error:
        raise input_error(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError):
        expected = f"watches of version {VERSION}, as qbe watch writes them"
        raise FileFormatError(f"{path}: expected {expected}, found {found}; choose another file") from None


def _is(value: object, hint: Any) -> bool:
    """Return whether a value of JSON is of a type: a class, a list, a mapping, literals, or a union."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is list:
        return isinstance(value, list) and all(_is(each, inner[0]) for each in value)
    if kind is Literal:
        return value in inner
    if inner and kind is not Mapping:
        return any(_is(value, each) for each in inner)
    wanted = (int, float) if kind is float else kind
    return isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))


@contextlib.contextmanager
def changing(path: StrPath) -> Iterator[Watches]:
    """Yield the watches of a file to be changed, and write them; OutputError after a minute of waiting."""
    with change_lock(path):
        watches = read_watches(path)
        yield watches
        write_watches(path, watches)


def write_watches(path: StrPath, watches: Watches) -> None:
    """Replace a file in one step; within `changing` alone."""
    searches = [asdict(watch) for watch in watches.watches.values()]
    record = {"qbe_watches": VERSION, "feed": watches.feed, "watches": searches, "known": watches.known}
    write_text(path, json.dumps(record, ensure_ascii=False) + "\n")


def watch_session(index: Index) -> SearchSession:
    """Open a session without Java and rerankers; raises UsageError for an index without grades."""
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

    Returns what went wrong, by the name of the watch, whose new papers then stay new.
    """
    session.index.refresh()  # no other process may have noted papers that this one does not see
    known = set(watches.known)
    watches.known += [paper_id for paper_id in session.index.papers.ids if paper_id not in known]
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    problems: dict[str, QbeError] = {}
    every = list(watches.watches.values())
    for some in (every[begin : begin + SEARCHES] for begin in range(0, len(every), SEARCHES)):
        searching = [watch for watch in some if watch.seen < len(watches.known)]
        grades = _graded(searching, watches.known, session, problems)
        for watch in some:
            advance(1)
            if watch.name not in problems:
                new, graded = watches.known[watch.seen :], grades.get(watch.name, {})
                best = sorted((-graded[paper_id], paper_id) for paper_id in new if paper_id in graded)
                found = [*watch.found, *(Found(paper_id, -grade, time) for grade, paper_id in best)]
                newest = len(found) - KEPT
                watch.found = [e for place, e in enumerate(found) if place >= newest or not e.reported]
                watch.seen += len(new)
    return problems


_Search = tuple[Watch, SearchForm, SearchRequest]


def _graded(
    watches: Sequence[Watch], known: Sequence[str], session: SearchSession, problems: dict[str, QbeError]
) -> dict[str, dict[str, float]]:
    index, searches = session.index, list[_Search]()
    for watch in watches:
        try:
            searches += [(watch, form, form.request(index, titles=False)) for form in watch.forms(index)]
        except QbeError as error:
            problems[watch.name] = error
    grades: dict[str, dict[str, float]] = {watch.name: {} for watch in watches}
    first = min((watch.seen for watch, _, _ in searches), default=len(known))
    for begin in range(first, len(known), TOGETHER):
        pool = [paper_id for paper_id in known[begin : begin + TOGETHER] if paper_id in index]
        due = [e for e in searches if e[0].seen < begin + TOGETHER and e[0].name not in problems and pool]
        for (watch, form, _), hits in zip(due, _found(due, pool, session), strict=True):
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
    """Return the hits of searches among some papers; one by one where something is wrong with any."""
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
    """Grade a hit from 0 to 3: in the searched facet, by the chance of being as asked, or the highest."""
    aspects, grades = form.aspects, hit.grades or {}
    if isinstance(aspects, Mapping):
        return round(HIGHEST * float(hit.score), 4)
    return grades.get(str(aspects), 0.0) if isinstance(aspects, Facet) else max(grades.values(), default=0.0)


log = logging.getLogger("qbe.feeds")

MAX_SHOWN = 200  # papers of a watch in an answer of a server, the newest
ATOM = "http://www.w3.org/2005/Atom"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


Item = tuple[Watch, Found, Paper]  # a paper that a watch found


def items_of(watches: Watches, index: Index, since: str | None, name: str | None = None) -> list[Item]:
    """Return what is not reported and what was found ``since`` a time, by watch, the newest and best first.

    Since '' is for ever, None nothing else. Papers that are gone are left out.
    """
    items, reader = [], index.reader  # a paper that is there must not go between two looks
    for watch in [watches.named(name)] if name else watches.watches.values():
        wanted = [e for e in watch.found if not e.reported or (since is not None and e.found >= since)]
        newest = sorted(wanted, key=lambda each: each.found, reverse=True)  # stable: the best stay first
        items += [(watch, e, reader.paper(e.paper_id)) for e in newest if e.paper_id in reader]
    return items


def record_of(item: Item) -> dict[str, Any]:
    """Return an item as JSON values, with the paper as search results have it."""
    watch, found, paper = item
    about = {"paper_id": paper.paper_id, "grade": found.grade, "found": found.found}
    return {"watch": watch.name, **about, **described(paper)}


def report(items: Sequence[Item], form: str, feed: str) -> str:
    """Format items as ``table``, ``json``, ``markdown`` or ``atom``; ``feed`` is the id of the feed."""
    if form == "atom":
        return _atom(items, feed)
    if form == "json":
        return "".join(f"{json.dumps(record_of(item), ensure_ascii=False)}\n" for item in items)
    sections = []
    width = max((len(paper.paper_id) for _, _, paper in items), default=0)
    for name, group in groupby(items, key=lambda item: item[0].name):
        of_watch = [(f"{found.grade:.2f}", paper) for _, found, paper in group]
        heading = f"{plain(name)}: {len(of_watch)} {'paper' if len(of_watch) == 1 else 'papers'}"
        if form == "markdown":
            texts = [(grade, "".join(export_parts([each], "markdown")).rstrip()) for grade, each in of_watch]
            lines = [f"## {escaped(heading)}\n\n", *(f"{text}, grade {grade}\n" for grade, text in texts)]
        else:
            lines = [f"{heading}\n", *(f"  {grade}  {line(paper, width)}\n" for grade, paper in of_watch)]
        sections.append("".join(lines))
    return "\n".join(sections) or "nothing new\n"


def _atom(items: Sequence[Item], feed: str) -> str:
    """Make the feed; an entry's id is made of the feed's, the watch and the paper, and never changes."""
    ElementTree.register_namespace("", ATOM)

    def child(parent: ElementTree.Element, name: str, text: str = "", **values: str) -> ElementTree.Element:
        attributes = {key: _NO_XML.sub("", value) for key, value in values.items()}
        made = ElementTree.SubElement(parent, f"{{{ATOM}}}{name}", attributes)
        made.text = _NO_XML.sub("", text) or None
        return made

    root = ElementTree.Element(f"{{{ATOM}}}feed")
    child(root, "title", "New papers, by qbe watch")
    child(root, "id", feed)
    child(root, "updated", max((found.found for _, found, _ in items), default="1970-01-01T00:00:00Z"))
    child(child(root, "author"), "name", "qbe watch")
    for watch, found, paper in sorted(items, key=lambda item: item[1].found, reverse=True):
        about, name = described(paper), watch.name
        entry = child(root, "entry")
        child(entry, "title", plain(about["title"]) or paper.paper_id)
        child(entry, "id", uuid.uuid5(uuid.UUID(feed), f"{name}\0{paper.paper_id}").urn)
        child(entry, "updated", found.found)
        for author in [each for each in about["authors"] if each != ET_AL]:
            child(child(entry, "author"), "name", plain(author))
        for address in list(about["links"].values())[:1]:
            child(entry, "link", href=address)
        child(entry, "category", term=name)
        child(entry, "summary", f"{name}, grade {found.grade:.2f}. {plain(about['abstract'])}")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


class Watcher:
    """Keeps watches in the file ``path``, which `qbe watch` uses as well, for a server of an index."""

    def __init__(self, path: str | Path, index: Index) -> None:
        self._path, self._index = Path(path), index
        self._problems: dict[str, str] = {}
        read_watches(self._path)
        watch_session(index).close()

    def find(self) -> None:
        """Find what is new for all watches; what goes wrong with one is logged, and kept for `records`."""
        if not read_watches(self._path).watches:
            self._problems = {}
            return
        self._change(find)

    def add(self, name: str, search: SearchForm, grade: float | None = None) -> dict[str, Any]:
        """Keep a search: papers that come into the index from now on, of at least a grade, are reported."""
        watch = watch_of(name, search, grade)
        self._change(lambda watches, session: keep(watches, watch, session))
        return self.records()

    def _change(self, change: Callable[[Watches, SearchSession], Mapping[str, QbeError]]) -> None:
        with watch_session(self._index) as session, changing(self._path) as watches:
            problems = change(watches, session)
            self._problems = {name: str(error) for name, error in problems.items()}
            for name, error in problems.items():
                log.error("%s: %s", name, error)

    def remove(self, name: str) -> dict[str, Any]:
        """Keep a search no longer."""
        with changing(self._path) as watches:
            del watches.watches[watches.named(name).name]
        return self.records()

    def records(self, since: str = "") -> dict[str, Any]:
        """Return searches that are kept, each with the papers that it found since a day, newest first."""
        check_day("since", since)
        watches, records = read_watches(self._path), []
        for watch in watches.watches.values():
            items = items_of(watches, self._index, since, watch.name)
            problem = self._problems.get(watch.name, "")
            problem = problem.replace(watch.cited, "bibliography") if watch.cited else problem
            papers = [record_of(item) for item in items if item[1].found >= since][:MAX_SHOWN]
            record = {"name": watch.name, "search": dict(watch.search), "is_bibliography": bool(watch.cited)}
            records.append({**record, "grade": watch.grade, "problem": problem, "papers": papers})
        return {"watches": records}

    def feed(self, name: str | None = None) -> str:
        """Return the Atom feed of all watches, or of one."""
        watches = read_watches(self._path)
        return report(items_of(watches, self._index, "", name), "atom", watches.feed)
