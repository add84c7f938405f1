"""Concurrent searches as batches: those that wait are searched together, too many are refused."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from qbe.errors import QbeError
from qbe.util.parallel import Closing

Task = TypeVar("Task")
Result = TypeVar("Result")
Batch = Callable[[Sequence[Any]], Sequence[Any]]

BATCH_SIZE = 16
"""How many searches are made in one call, at most."""

SMOOTHING = 0.2
"""The share of the last searches in the mean time of a search."""

TIMEOUT: ContextVar[float | None] = ContextVar("timeout", default=None)
"""Seconds that a search of this context may wait for its turn; None: as the queue says."""


class OverloadedError(QbeError):
    """More searches wait than can be answered in time; ``retry_after`` is when to ask again, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many searches are waiting; try again in {retry_after} s")
        self.retry_after = retry_after


class TooSlowError(QbeError):
    """A search took longer than its limit."""


class _Waiting(NamedTuple):
    batch: Batch
    task: Any
    answer: Future[Any]


class MicroBatchQueue(Closing):
    """Batches concurrent searches; rejects one whose estimated wait exceeds `timeout`.

    So each call gets all processors, and under load FAISS and the models get many queries at once. The wait
    is estimated by the mean time of the last searches, in seconds. A search that is cancelled while it waits
    is not made.

    >>> with MicroBatchQueue(timeout=5) as queue:
    ...     queue.submit(lambda tasks: [task.upper() for task in tasks], "a").result()
    'A'
    """

    def __init__(self, timeout: float) -> None:
        """Start the thread that searches; closing ends it."""
        self._timeout = timeout
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._in_progress, self._seconds, self._closed = 0, 0.0, False
        self._thread = threading.Thread(target=self._run, name="qbe-searches", daemon=True)
        self._thread.start()

    def submit(self, batch: Callable[[Sequence[Task]], Sequence[Result]], task: Task) -> Future[Result]:
        """The result that ``batch`` has for a task; it gets all tasks that wait together, and must have the
        result that it has for each of them alone.

        Raises OverloadedError where too many are waiting.
        """
        waiting = _Waiting(batch, task, Future())
        with self._changed:
            if self._closed:
                raise OverloadedError(1)
            before, timeout = self._count(), TIMEOUT.get() or self._timeout
            wait = before * self._seconds
            # One that has nobody before it is never refused, however long searches take.
            if before and wait + self._seconds > timeout:
                raise OverloadedError(max(1, math.ceil(wait)))
            self._waiting.append(waiting)
            self._changed.notify()
        return waiting.answer

    @property
    def waiting(self) -> int:
        """How many searches wait or are in progress."""
        with self._changed:
            return self._count()

    def close(self) -> None:
        """End the thread, after the searches in progress; those that wait are refused."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for each in _not_cancelled(waiting):
            each.answer.set_exception(OverloadedError(1))
        self._thread.join()

    def _count(self) -> int:
        """How many searches a new one would wait for; those that were cancelled take no time."""
        return sum(not each.answer.cancelled() for each in self._waiting) + self._in_progress

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if not batch:
                continue
            begin = time.perf_counter()
            _answer(batch)
            mean = (time.perf_counter() - begin) / len(batch)
            with self._changed:
                self._seconds += SMOOTHING * (mean - self._seconds) if self._seconds else mean
                self._in_progress = 0

    def _next(self) -> list[_Waiting] | None:
        """The searches to make next, none of them cancelled: [] where all were; None at the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            count = min(len(self._waiting), BATCH_SIZE)
            batch = _not_cancelled([self._waiting.popleft() for _ in range(count)])
            self._in_progress = len(batch)
            return batch


def _answer(waiting: Sequence[_Waiting]) -> None:
    try:
        results = waiting[0].batch([each.task for each in waiting])
    except BaseException as error:
        if len(waiting) == 1:
            waiting[0].answer.set_exception(error)
            return
        for each in waiting:  # an error of one search must not fail the others
            _answer([each])
        return
    for each, result in zip(waiting, results, strict=True):
        each.answer.set_result(result)


def _not_cancelled(waiting: Sequence[_Waiting]) -> list[_Waiting]:
    """Those that nobody has given up by now; from here on they cannot be cancelled."""
    return [each for each in waiting if each.answer.set_running_or_notify_cancel()]


class BatchExecutor(Closing):
    """What runs the steps of a `qbe.search.session.SearchSession`: a queue for each stage.

    A step that takes longer than ``limit`` seconds, waiting included, raises TooSlowError.
    """

    def __init__(self, timeouts: dict[str, float], limit: float) -> None:
        """``timeouts``: seconds that a search may wait, by stage."""
        self._queues = {stage: MicroBatchQueue(timeout) for stage, timeout in timeouts.items()}
        self._limit = limit

    def __call__(self, stage: str, batch: Callable[[Sequence[Task]], Sequence[Result]], task: Task) -> Result:
        """The result of a task; raises OverloadedError, TooSlowError."""
        answer = self._queues[stage].submit(batch, task)
        try:
            return answer.result(self._limit)
        except FutureTimeoutError:
            answer.cancel()
            raise TooSlowError(
                f"the search took longer than {self._limit:g} s and was given up; ask for fewer hits"
            ) from None

    @property
    def waiting(self) -> dict[str, int]:
        """How many searches wait or are in progress, by stage."""
        return {stage: queue.waiting for stage, queue in self._queues.items()}

    def close(self) -> None:
        """End all threads; searches that wait are refused."""
        for queue in self._queues.values():
            queue.close()
