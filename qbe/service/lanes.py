"""Searches of many callers over one pipeline: those that wait are searched together, too many are refused."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from qbe.closing import Closing
from qbe.errors import QbeError
from qbe.query import Query
from qbe.search.filters import PaperFilter
from qbe.search.pipeline import Pipeline
from qbe.search.vectors import PreparedQuery
from qbe.types import Hit

TOGETHER = 16
"""How many searches that wait are made one call of `Pipeline.batch_search`, at the most."""

SMOOTHING = 0.2
"""The share of the last searches in the mean time of a search."""


class OverloadedError(QbeError):
    """More searches wait than can be answered in time; ``retry_after`` is when to ask again, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many searches are waiting; try again in {retry_after} s")
        self.retry_after = retry_after


class _Waiting(NamedTuple):
    query: Query | PreparedQuery
    k: int
    filter: PaperFilter | None
    answer: Future[list[Hit]]

    def fits(self, other: _Waiting) -> bool:
        """Whether both may be searched by one call."""
        return self.k == other.k and self.filter == other.filter


class Lane(Closing):
    """Searches with one pipeline, one call at a time, made of all that wait by then and ask for the same.

    So each search gets all processors, and under load FAISS and the reranker get many queries at once. A
    search that would have to wait longer than ``patience`` (seconds), by the mean time of the last ones, is
    refused.

    >>> from qbe import Facet, SearchConfig
    >>> config = SearchConfig(rerank="none")
    >>> with Pipeline.open(index, config) as pipeline, Lane(pipeline, patience=5) as lane:
    ...     [hit.paper_id for hit in lane.submit(Query(index.paper("s036"), Facet.METHOD), 1).result()]
    ['s051']
    """

    def __init__(self, pipeline: Pipeline, patience: float) -> None:
        """Start the thread that searches; closing ends it and leaves the pipeline open."""
        self.pipeline, self._patience = pipeline, patience
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._under_way, self._seconds, self._closed = 0, 0.0, False
        self._thread = threading.Thread(target=self._run, name="qbe-searches", daemon=True)
        self._thread.start()

    def submit(
        self, query: Query | PreparedQuery, k: int, filter: PaperFilter | None = None
    ) -> Future[list[Hit]]:
        """The hits of a search, as `Pipeline.search` gives them, once it is done.

        Raises OverloadedError where too many are waiting.
        """
        waiting = _Waiting(query, k, filter, Future())
        with self._changed:
            if self._closed:
                raise OverloadedError(1)
            before = len(self._waiting) + self._under_way
            wait = before * self._seconds
            # One that has nobody before it is never refused, however long searches take.
            if before and wait + self._seconds > self._patience:
                raise OverloadedError(max(1, math.ceil(wait)))
            self._waiting.append(waiting)
            self._changed.notify()
        return waiting.answer

    @property
    def waiting(self) -> int:
        """How many searches wait or are under way."""
        with self._changed:
            return len(self._waiting) + self._under_way

    def close(self) -> None:
        """End the thread, after the searches that are under way; those that wait are refused."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for each in waiting:
            each.answer.set_exception(OverloadedError(1))
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            begin = time.perf_counter()
            self._search(batch)
            mean = (time.perf_counter() - begin) / len(batch)
            with self._changed:
                self._seconds += SMOOTHING * (mean - self._seconds) if self._seconds else mean
                self._under_way = 0

    def _next(self) -> list[_Waiting]:
        """The searches to make next, [] at the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return []
            first = self._waiting.popleft()
            batch, rest = [first], deque[_Waiting]()
            for each in self._waiting:
                (batch if len(batch) < TOGETHER and first.fits(each) else rest).append(each)
            self._waiting = rest
            self._under_way = len(batch)
            return batch

    def _search(self, batch: list[_Waiting]) -> None:
        # Who asked may have given up by now.
        batch = [each for each in batch if each.answer.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            queries = [each.query for each in batch]
            answers = self.pipeline.batch_search(queries, batch[0].k, filter=batch[0].filter)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for each in batch:  # what is wrong with one is not the others' fault
                self._search_one(each)
            return
        for each, hits in zip(batch, answers, strict=True):
            each.answer.set_result(hits)

    def _search_one(self, waiting: _Waiting) -> None:
        try:
            hits = self.pipeline.search(waiting.query, waiting.k, filter=waiting.filter)
        except BaseException as error:
            waiting.answer.set_exception(error)
            return
        waiting.answer.set_result(hits)
