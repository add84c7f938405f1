"""Concurrent searches in micro-batches: those that wait are made together, too many are refused."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from qbe.errors import QbeError
from qbe.util.work import Closing

Task = TypeVar("Task")
Result = TypeVar("Result")
Batch = Callable[[Sequence[Task]], Sequence[Result]]

BATCH_SIZE = 16  # searches in a batch, at most
MAX_WAITING = 64  # searches of a stage that may wait or be in progress
MAX_SECONDS = 60.0  # within which a search must have gone through a stage, waiting included


class OverloadedError(QbeError):
    """Too many searches are waiting."""

    def __init__(self) -> None:
        super().__init__("too many searches are waiting; try again in 1 s")


class TooSlowError(QbeError):
    """A search took longer than its limit."""


class MicroBatchQueue(Closing):
    """A thread that makes searches in batches of those that wait, so that each batch gets all processors and
    models get many queries at once. A search that is cancelled while it waits is not made.
    """

    def __init__(self) -> None:
        self._waiting = deque[tuple[Batch[Any, Any], Any, Future[Any]]]()
        self._changed = threading.Condition()
        self._in_progress, self._closed = 0, False
        self._thread = threading.Thread(target=self._run, name="qbe-searches", daemon=True)
        self._thread.start()

    def result(self, batch: Batch[Task, Result], task: Task) -> Result:
        """The result of a task; raises what `submit` does, TooSlowError after MAX_SECONDS."""
        answer = self.submit(batch, task)
        try:
            return answer.result(MAX_SECONDS)
        except TimeoutError:
            answer.cancel()
            took = f"longer than {MAX_SECONDS:g} s and was given up"
            raise TooSlowError(f"the search took {took}; ask for fewer hits") from None

    def submit(self, batch: Batch[Task, Result], task: Task) -> Future[Result]:
        """Queue a task; ``batch`` gets all tasks that wait together, and must have the result for each that
        it has for it alone. Raises OverloadedError where as many wait as may.
        """
        answer: Future[Result] = Future()
        with self._changed:
            if self._closed or self.waiting >= MAX_WAITING:
                raise OverloadedError
            self._waiting.append((batch, task, answer))
            self._changed.notify()
        return answer

    @property
    def waiting(self) -> int:
        """How many searches wait or are in progress."""
        return sum(not answer.cancelled() for *_, answer in [*self._waiting]) + self._in_progress

    def close(self) -> None:
        """End the thread after the batch in progress; refuse the searches that wait."""
        with self._changed:
            self._closed = True
            refused = [*self._waiting]
            self._waiting.clear()
            self._changed.notify()
        for *_, answer in refused:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(OverloadedError())
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_SIZE))]
                batch = [each for each in taken if each[-1].set_running_or_notify_cancel()]
                self._in_progress = len(batch)
            if batch:
                _answer(batch)
            self._in_progress = 0


def _answer(waiting: Sequence[tuple[Batch[Any, Any], Any, Future[Any]]]) -> None:
    function, _, first = waiting[0]
    try:
        results = function([task for _, task, _ in waiting])
    except BaseException as error:
        if len(waiting) == 1:
            first.set_exception(error)
            return
        for each in waiting:  # an error of one search must not fail the others
            _answer([each])
        return
    for (*_, answer), result in zip(waiting, results, strict=True):
        answer.set_result(result)
