"""Searches of many callers, one call at a time: those that wait are made together, too many are refused."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from qbe.cite.recommender import CiteRequest, Recommender
from qbe.closing import Closing
from qbe.errors import QbeError
from qbe.query import Query
from qbe.search.filters import PaperFilter
from qbe.search.pipeline import Pipeline
from qbe.types import Hit

Request = TypeVar("Request")

TOGETHER = 16
"""How many searches that wait are made one call, at the most."""

SMOOTHING = 0.2
"""The share of the last searches in the mean time of a search."""


class OverloadedError(QbeError):
    """More searches wait than can be answered in time; ``retry_after`` is when to ask again, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many searches are waiting; try again in {retry_after} s")
        self.retry_after = retry_after


class _Waiting(NamedTuple, Generic[Request]):
    request: Request
    k: int
    filter: PaperFilter | None
    answer: Future[list[Hit]]

    def fits(self, other: _Waiting[Request]) -> bool:
        """Whether both may be searched by one call."""
        return self.k == other.k and self.filter == other.filter


class WaitingLine(Closing, Generic[Request]):
    """Searches of one kind, one call at a time, made of all that wait by then and ask for the same.

    So each search gets all processors, and under load FAISS and the models get many queries at once. A
    search that would have to wait longer than ``patience`` (seconds), by the mean time of the last ones, is
    refused. One that is cancelled while it waits is not made.
    """

    def __init__(
        self,
        search: Callable[[Sequence[Request], int, PaperFilter | None], list[list[Hit]]],
        patience: float,
    ) -> None:
        """Start the thread that calls ``search``, which gives so many hits that pass a filter for each of
        some requests; closing ends the thread.
        """
        self._search, self._patience = search, patience
        self._waiting: deque[_Waiting[Request]] = deque()
        self._changed = threading.Condition()
        self._under_way, self._seconds, self._closed = 0, 0.0, False
        self._thread = threading.Thread(target=self._run, name="qbe-searches", daemon=True)
        self._thread.start()

    def submit(self, request: Request, k: int, filter: PaperFilter | None = None) -> Future[list[Hit]]:
        """The ``k`` hits of a search, once it is done.

        Raises OverloadedError where too many are waiting.
        """
        waiting = _Waiting(request, k, filter, Future[list[Hit]]())
        with self._changed:
            if self._closed:
                raise OverloadedError(1)
            before = self._before()
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
            return self._before()

    def close(self) -> None:
        """End the thread, after the searches that are under way; those that wait are refused."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for each in _still_wanted(waiting):
            each.answer.set_exception(OverloadedError(1))
        self._thread.join()

    def _before(self) -> int:
        """How many searches a new one would wait for; those that were cancelled take no time."""
        return sum(not each.answer.cancelled() for each in self._waiting) + self._under_way

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if not batch:
                continue
            begin = time.perf_counter()
            self._answer(batch)
            mean = (time.perf_counter() - begin) / len(batch)
            with self._changed:
                self._seconds += SMOOTHING * (mean - self._seconds) if self._seconds else mean
                self._under_way = 0

    def _next(self) -> list[_Waiting[Request]] | None:
        """The searches to make next, none of them cancelled: [] where all were; None at the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            first = self._waiting.popleft()
            batch, rest = [first], deque[_Waiting[Request]]()
            for each in self._waiting:
                (batch if len(batch) < TOGETHER and first.fits(each) else rest).append(each)
            self._waiting = rest
            batch = _still_wanted(batch)
            self._under_way = len(batch)
            return batch

    def _answer(self, batch: Sequence[_Waiting[Request]]) -> None:
        first = batch[0]
        try:
            answers = self._search([each.request for each in batch], first.k, first.filter)
        except BaseException as error:
            if len(batch) == 1:
                first.answer.set_exception(error)
                return
            for each in batch:  # what is wrong with one is not the others' fault
                self._answer([each])
            return
        for each, hits in zip(batch, answers, strict=True):
            each.answer.set_result(hits)


def _still_wanted(waiting: Sequence[_Waiting[Request]]) -> list[_Waiting[Request]]:
    """Those that nobody has given up by now; from here on they cannot be cancelled."""
    return [each for each in waiting if each.answer.set_running_or_notify_cancel()]


class Lane(WaitingLine[Query]):
    """Searches with one pipeline: `submit` gives the hits of `Pipeline.search`.

    >>> from qbe import Facet, Fused
    >>> with Pipeline(index, Fused()) as pipeline, Lane(pipeline, patience=5) as lane:
    ...     [hit.paper_id for hit in lane.submit(Query(index.paper("s036"), Facet.METHOD), 1).result()]
    ['s051']
    """

    def __init__(self, pipeline: Pipeline, patience: float) -> None:
        """Search with a pipeline, which closing leaves open."""
        self.pipeline = pipeline
        super().__init__(
            lambda requests, k, passing: pipeline.batch_search(requests, k, filter=passing), patience
        )


class CitationLane(WaitingLine[CiteRequest]):
    """Recommendations with one recommender: `submit` gives the hits of `Recommender.recommend`.

    >>> with Recommender.open(index) as recommender, CitationLane(recommender, patience=5) as lane:
    ...     hits = lane.submit(CiteRequest(index.paper("s036")), 2).result()
    >>> len(hits)
    2
    """

    def __init__(self, recommender: Recommender, patience: float) -> None:
        """Recommend with a recommender, which closing leaves open."""
        self.recommender = recommender
        super().__init__(
            lambda requests, k, passing: recommender.batch_recommend(requests, k, filter=passing), patience
        )
