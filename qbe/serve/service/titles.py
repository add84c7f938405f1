"""Completion of titles and ids, as a search box offers them."""

from __future__ import annotations

import threading
from typing import NamedTuple

from qbe.index.index import Index
from qbe.index.names import Names
from qbe.index.reader import IndexReader


class Title(NamedTuple):
    """A paper by its id and title."""

    paper_id: str
    title: str


class TitleSearch:
    """Finds papers by the words of their titles, the last one perhaps only begun, or by their ids, DOIs and
    ids of arXiv, also as addresses.

    Titles are read in the background when the first is asked for, and again when the index has moved on;
    until then only ids are found.

    >>> titles = TitleSearch(index)
    >>> titles.wait()
    >>> [title.paper_id for title in titles.complete("two crops of a par", 5)]
    ['s036']
    >>> [title.paper_id for title in titles.complete("S036", 5)]
    ['s036']
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._names: Names | None = None
        self._digest = ""
        self._reading: threading.Thread | None = None

    def complete(self, text: str, count: int) -> list[Title]:
        """At most ``count`` papers: one with exactly this id first, then those whose titles match, in the
        order of the index.
        """
        with self._index.reading() as reader:
            ids = [text.strip()] if text.strip() in reader else []
            names = self._of(reader)
            for paper_id in names.complete(text) if names is not None else ():
                if len(ids) == count:
                    break
                if paper_id in reader and paper_id not in ids:
                    ids.append(paper_id)
            return [Title(paper_id, reader.paper(paper_id).title) for paper_id in ids[:count]]

    def wait(self) -> None:
        """Wait until titles are read."""
        with self._index.reading() as reader:
            self._of(reader)
        with self._lock:
            reading = self._reading
        if reading is not None:
            reading.join()

    def _of(self, reader: IndexReader) -> Names | None:
        """The names of a commit, or older ones while these are being read."""
        with self._lock:
            current = self._digest == reader.manifest.digest
            if not current and (self._reading is None or not self._reading.is_alive()):
                self._reading = threading.Thread(target=self._read, name="qbe-titles", daemon=True)
                self._reading.start()
            return self._names

    def _read(self) -> None:
        with self._index.reading() as reader:
            names, digest = reader.names, reader.manifest.digest
        with self._lock:
            self._names, self._digest = names, digest
