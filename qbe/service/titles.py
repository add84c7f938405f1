"""Completion of titles and ids, as a search box offers them."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from qbe.corpus.dedupe import normalized_title, other_ids
from qbe.corpus.fields import doi
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.types import Paper

_END = "\n"
_ARXIV = re.compile(
    r"(?:https?://(?:www\.)?arxiv\.org/(?:abs|pdf|html)/|arxiv:\s*)?"
    r"(\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?(?:\.pdf)?"
)


class Title(NamedTuple):
    """A paper by its id and title."""

    paper_id: str
    title: str


class _Titles:
    """The titles of one commit, one text in which they are looked for."""

    def __init__(self, reader: IndexReader) -> None:
        self.digest = reader.manifest.digest
        self._ids: list[str] = []
        self._starts: list[int] = []
        self.by_name: dict[str, str] = {}
        parts, length = [], 0
        for paper in reader:
            for name in _names(paper):
                self.by_name.setdefault(name, paper.paper_id)
            words = f" {normalized_title(paper.title)}"
            self._ids.append(paper.paper_id)
            self._starts.append(length)
            parts.append(words)
            length += len(words) + 1
        self._text = _END.join(parts) + _END

    def matching(self, words: list[str]) -> Iterator[str]:
        """Ids of papers whose titles have all words, the last of them perhaps only begun."""
        patterns = [f" {word} " for word in words[:-1]] + [f" {words[-1]}"]
        rarest = max(patterns, key=len)
        place = self._text.find(rarest)
        while place >= 0:
            row = bisect_right(self._starts, place) - 1
            end = self._text.index(_END, place)
            title = self._text[self._starts[row] : end] + " "
            if all(pattern in title for pattern in patterns):
                yield self._ids[row]
            place = self._text.find(rarest, end)


def _names(paper: Paper) -> Iterator[str]:
    """What a paper is called other than by its title."""
    return map(_name, (paper.paper_id, *other_ids(paper.metadata)))


def _name(text: str) -> str:
    """An id as it is compared: a DOI alone, an id of arXiv without address and version, in lower case.

    >>> _name("https://doi.org/10.48550/arXiv.1905.01234"), _name("https://arxiv.org/abs/1905.01234v2")
    ('1905.01234', '1905.01234')
    >>> _name("doi:10.1145/7.9"), _name(" S036 ")
    ('10.1145/7.9', 's036')
    """
    name = doi(text).removeprefix("10.48550/arxiv.") or text.strip().lower()
    match = _ARXIV.fullmatch(name)
    return match[1] if match else name


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
        self._titles: _Titles | None = None
        self._reading: threading.Thread | None = None

    def complete(self, text: str, count: int) -> list[Title]:
        """At most ``count`` papers: one with exactly this id first, then those whose titles match, in the
        order of the index.
        """
        words = normalized_title(text).split()
        with self._index.reading() as reader:
            ids = [text.strip()] if text.strip() in reader else []
            titles = self._of(reader)
            named = titles.by_name.get(_name(text)) if titles is not None else None
            if named is not None and named not in ids and named in reader:
                ids.append(named)
            if titles is not None and words:
                for paper_id in titles.matching(words):
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

    def _of(self, reader: IndexReader) -> _Titles | None:
        """The titles of a commit, or older ones while these are being read."""
        with self._lock:
            current = self._titles is not None and self._titles.digest == reader.manifest.digest
            if not current and (self._reading is None or not self._reading.is_alive()):
                self._reading = threading.Thread(target=self._read, name="qbe-titles", daemon=True)
                self._reading.start()
            return self._titles

    def _read(self) -> None:
        with self._index.reading() as reader:
            titles = _Titles(reader)
        with self._lock:
            self._titles = titles
