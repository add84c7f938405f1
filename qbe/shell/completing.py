"""What a word of a command may go on as."""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import islice, takewhile

from qbe.service.service import SearchService
from qbe.shapes import SHAPES
from qbe.shell.commands import COMMANDS, FORMATS, SEEDS
from qbe.shell.parsing import ALL
from qbe.types import Facet

MOST = 200
"""Ids that are offered."""

_FACETS = tuple(map(str, Facet))
_WORDS: dict[str, tuple[str, ...]] = {
    "facet": (*_FACETS, ALL),
    "like": (*_FACETS, "unlike"),
    "unlike": _FACETS,
    "explore": tuple(SHAPES),
    "export": (*FORMATS, SEEDS),
    "rerank": ("on", "off"),
    "year": (ALL,),
    "category": (ALL,),
    "help": tuple(COMMANDS),
}
"""Words that complete the arguments of commands."""

_OF_IDS = ("paper", "show")
"""Commands whose arguments are ids."""


class Completion:
    """Completes the arguments of commands: words, and ids of papers."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._digest = ""
        self._ids: list[str] = []

    def words(self, command: str, argument: str, begin: str) -> list[str]:
        """What the last word of a command's argument, of which ``begin`` is there, may be."""
        completions = [word for word in _WORDS.get(command, ()) if word.startswith(begin)]
        return [*completions, *(self._ids_of(begin, argument) if command in _OF_IDS else [])]

    def _ids_of(self, begin: str, words: str) -> list[str]:
        """Ids that begin so; where there are none, that of the only paper whose title has the words."""
        ids = self._sorted()
        place = bisect_left(ids, begin)
        matched = list(islice(takewhile(lambda each: each.startswith(begin), islice(ids, place, None)), MOST))
        if matched or not words.strip():
            return matched
        papers = self._service.complete(words, 2)["papers"]
        return [papers[0]["paper_id"]] if len(papers) == 1 else []

    def _sorted(self) -> list[str]:
        with self._service.index.reading() as reader, self._lock:
            if reader.manifest.digest != self._digest:
                self._ids = sorted(paper_id for paper_id in reader.papers.ids if paper_id in reader)
                self._digest = reader.manifest.digest
            return self._ids
