"""Reports of what watches found as a table, JSON lines, Markdown or Atom (RFC 4287); watches of a server."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from qbe.corpus.names import ET_AL
from qbe.errors import QbeError
from qbe.feeds import check_day
from qbe.feeds import watches as kept
from qbe.feeds.watches import Found, Watch, Watches, changing, read_watches, watch_session
from qbe.index.index import Index
from qbe.search.present import escaped, line
from qbe.search.request import SearchForm
from qbe.search.session import SearchSession
from qbe.search.writers import described, export_parts
from qbe.types import Paper
from qbe.util.text import plain

log = logging.getLogger("qbe.feeds")

MAX_SHOWN = 200  # papers of a watch in an answer of a server, the newest
ATOM = "http://www.w3.org/2005/Atom"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Item(NamedTuple):
    """A paper that a watch found."""

    watch: Watch
    found: Found
    paper: Paper


def items_of(watches: Watches, index: Index, since: str | None, name: str | None = None) -> list[Item]:
    """Return what is not reported and what was found ``since`` a time, by watch, the newest and best first.

    Since '' is for ever, None nothing else. Papers that are gone are left out.
    """
    items, reader = [], index.reader  # a paper that is there must not go between two looks
    for watch in [watches.named(name)] if name else watches.watches.values():
        wanted = [e for e in watch.found if not e.reported or (since is not None and e.found >= since)]
        newest = sorted(wanted, key=lambda each: each.found, reverse=True)  # stable: the best stay first
        items += [Item(watch, e, reader.paper(e.paper_id)) for e in newest if e.paper_id in reader]
    return items


def record_of(item: Item) -> dict[str, Any]:
    """Return an item as JSON values, with the paper as search results have it."""
    found = {"paper_id": item.paper.paper_id, "grade": item.found.grade, "found": item.found.found}
    return {"watch": item.watch.name, **found, **described(item.paper)}


def report(items: Sequence[Item], form: str, feed: str) -> str:
    """Format items as ``table``, ``json``, ``markdown`` or ``atom``; ``feed`` is the id of the feed."""
    if form == "atom":
        return _atom(items, feed)
    if form == "json":
        return "".join(f"{json.dumps(record_of(item), ensure_ascii=False)}\n" for item in items)
    sections = []
    width = max((len(item.paper.paper_id) for item in items), default=0)
    for name, group in groupby(items, key=lambda item: item.watch.name):
        of_watch = [(f"{item.found.grade:.2f}", item.paper) for item in group]
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
    child(root, "updated", max((item.found.found for item in items), default="1970-01-01T00:00:00Z"))
    child(child(root, "author"), "name", "qbe watch")
    for item in sorted(items, key=lambda item: item.found.found, reverse=True):
        about, name = described(item.paper), item.watch.name
        entry = child(root, "entry")
        child(entry, "title", plain(about["title"]) or item.paper.paper_id)
        child(entry, "id", uuid.uuid5(uuid.UUID(feed), f"{name}\0{item.paper.paper_id}").urn)
        child(entry, "updated", item.found.found)
        for author in [each for each in about["authors"] if each != ET_AL]:
            child(child(entry, "author"), "name", plain(author))
        for address in list(about["links"].values())[:1]:
            child(entry, "link", href=address)
        child(entry, "category", term=name)
        child(entry, "summary", f"{name}, grade {item.found.grade:.2f}. {plain(about['abstract'])}")
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
        self._change(kept.find)

    def add(self, name: str, search: SearchForm, grade: float | None = None) -> dict[str, Any]:
        """Keep a search: papers that come into the index from now on, of at least a grade, are reported."""
        watch = kept.watch_of(name, search, grade)
        self._change(lambda watches, session: kept.keep(watches, watch, session))
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
            papers = [record_of(item) for item in items if item.found.found >= since][:MAX_SHOWN]
            record = {"name": watch.name, "search": dict(watch.search), "is_bibliography": bool(watch.cited)}
            records.append({**record, "grade": watch.grade, "problem": problem, "papers": papers})
        return {"watches": records}

    def feed(self, name: str | None = None) -> str:
        """Return the Atom feed of all watches, or of one."""
        watches = read_watches(self._path)
        return report(items_of(watches, self._index, "", name), "atom", watches.feed)
