"""What a word of a command may go on as."""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import islice, takewhile

from qbe.service.service import SearchService

MOST = 200
"""Words that are offered."""


class Completion:
    """Completes ids of papers."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._digest = ""
        self._ids: list[str] = []

    def ids(self, begin: str, words: str) -> list[str]:
        """Ids that begin so; where there are none, that of the only paper whose title has the words."""
        ids = self._sorted()
        place = bisect_left(ids, begin)
        found = list(islice(takewhile(lambda each: each.startswith(begin), islice(ids, place, None)), MOST))
        if found or not words.strip():
            return found
        papers = self._service.complete(words, 2)["papers"]
        return [papers[0]["paper_id"]] if len(papers) == 1 else []

    def _sorted(self) -> list[str]:
        with self._service.index.reading() as reader, self._lock:
            if reader.manifest.digest != self._digest:
                self._ids = sorted(paper_id for paper_id in reader.papers.ids if paper_id in reader)
                self._digest = reader.manifest.digest
            return self._ids
