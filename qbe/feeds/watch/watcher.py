"""The watches of a file, for a server: searches are kept and removed, and new papers are found."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from qbe.errors import QbeError
from qbe.feeds.watch.finding import find, keep, watch_session
from qbe.feeds.watch.reports import Item, items_of, record_of, report
from qbe.feeds.watch.watches import LONGEST_NAME, Watches, changing, read_watches, watch_of, write_watches
from qbe.index.index import Index
from qbe.serve.service.requests import Body, SearchBody
from qbe.types import Paper

log = logging.getLogger("qbe.feeds.watch")

MOST_SHOWN = 200
"""Papers of a watch in an answer, the newest."""


class WatchBody(Body):
    """A search to keep under a name."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME, description="what it is called")
    search: SearchBody = Field(description="as of /api/search; its page and exclude do not count")
    grade: float | None = Field(
        default=None, ge=0, le=3, description="papers of at least this grade are new (default: 1, or 0.5)"
    )


class WatchName(Body):
    """A search that is kept."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME, description="what it is called")


class Watcher:
    """Keeps watches in the file ``path``, which `qbe watch` uses as well, over an index."""

    def __init__(self, path: str | Path, index: Index) -> None:
        """Raises what `read_watches` does, UsageError for an index without grades."""
        self._path, self._index = Path(path), index
        self._problems: dict[str, str] = {}
        read_watches(self._path)
        watch_session(index).close()

    def find(self) -> None:
        """Find what is new for all watches; what goes wrong with one is logged, and kept for `records`."""
        if not read_watches(self._path).watches:
            self._problems = {}
            return
        with watch_session(self._index) as session, changing(self._path) as watches:
            self._note(find(watches, session))
            write_watches(self._path, watches)

    def _note(self, problems: Mapping[str, QbeError]) -> None:
        self._problems = {name: str(error) for name, error in problems.items()}  # others read the one before
        for name, error in problems.items():
            log.error("%s: %s", name, error)

    def add(self, body: WatchBody) -> dict[str, Any]:
        """Keep a search, for which all papers of the index are old; raises UsageError for a name that is
        taken, and what the search does.
        """
        watch = watch_of(body.name, body.search, body.grade)
        with watch_session(self._index) as session, changing(self._path) as watches:
            self._note(keep(watches, watch, session))
            write_watches(self._path, watches)
        return self.records()

    def remove(self, name: str) -> dict[str, Any]:
        """Remove a search; raises UsageError where there is none of that name."""
        with changing(self._path) as watches:
            watches.remove(name)
            write_watches(self._path, watches)
        self._problems = {each: problem for each, problem in self._problems.items() if each != name}
        return self.records()

    def records(self, since: str = "") -> dict[str, Any]:
        """All watches as JSON values, with the papers that they found ``since`` a time, the newest first, and
        the ``problem`` of one whose last search failed, '' of others.
        """
        watches = read_watches(self._path)
        return {
            "watches": [
                {
                    "name": watch.name,
                    "search": dict(watch.search),
                    "is_bibliography": bool(watch.cited),
                    "grade": watch.grade,
                    "problem": self._problems.get(watch.name, "").replace(
                        watch.cited or "\0", "bibliography"
                    ),
                    "papers": [
                        record_of(item) for item in self._items(watches, since, watch.name)[:MOST_SHOWN]
                    ],
                }
                for watch in watches.watches.values()
            ]
        }

    def feed(self, name: str | None = None) -> str:
        """The Atom feed of all watches, or of one; raises UsageError where there is none of that name."""
        watches = read_watches(self._path)
        if name is not None:
            watches.check_name(name)
        return report(self._items(watches, "", name), "atom", watches.feed)

    def _items(self, watches: Watches, since: str, name: str | None) -> list[Item]:
        items = items_of(watches, self._paper, since, name)
        return [item for item in items if item.found.found >= since]

    def _paper(self, paper_id: str) -> Paper | None:
        return self._index.paper(paper_id) if paper_id in self._index else None
