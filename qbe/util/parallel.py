"""Work spread over threads, results in order, and what holds threads or files until it is closed.

The heavy parts of qbe (ONNX Runtime, FAISS, Lucene, numpy's products) let go of the interpreter's lock, so
that Python threads run them side by side.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from qbe.errors import check_count

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 8
"""Items a thread that are taken from a stream before their turn comes."""

_inside = threading.local()


def available_threads() -> int:
    """Processors this process may run on: the affinity mask, which containers set, not the host's count.

    >>> available_threads() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """A number of threads, by default all available ones; raises UsageError below 1, TypeError for another
    type.

    >>> thread_count(4)
    4
    """
    if threads is None:
        return available_threads()
    check_count("threads", threads)
    return threads


class Closing(ABC):
    """What is closed at the end of a ``with`` block, whether it ends well or not.

    >>> class Door(Closing):
    ...     def close(self) -> None:
    ...         print("closed")
    >>> with Door():
    ...     print("open")
    open
    closed
    """

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Workers(Closing):
    """A pool of threads that lives as long as its owner; started when first needed.

    Usable as a context manager. Several threads may use it at a time. What runs in a worker and itself asks
    for workers does its work alone, so that no worker waits for another.

    >>> with Workers(2) as workers:
    ...     list(workers.map(str.upper, ["a", "b", "c"]))
    ['A', 'B', 'C']
    """

    def __init__(self, threads: int = 1) -> None:
        """``threads`` is the number of items under way at a time."""
        self.threads = threads
        self._starting = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._at_exit: list[Callable[[], object]] = []

    def map(self, function: Callable[[T], R], items: Iterable[T], ahead: int = AHEAD) -> Iterator[R]:
        """``function`` of each item, in order; at most ``ahead`` items a thread of a stream are read ahead.

        With one thread, with one item, or called by a worker, the calling thread does the work.
        """
        if self.threads <= 1 or getattr(_inside, "worker", False) or _length(items) <= 1:
            yield from map(function, items)
            return
        pool = self._started()
        begun: deque[Future[R]] = deque()
        try:
            for item in items:
                begun.append(pool.submit(function, item))
                if len(begun) >= ahead * self.threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            wait([future for future in begun if not future.cancel()])

    def at_exit(self, function: Callable[[], object]) -> None:
        """Have each worker call a function once before it ends, such as to leave the Java virtual machine."""
        with self._starting:
            if function not in self._at_exit:
                self._at_exit.append(function)

    def close(self) -> None:
        """End the threads; they are started again if there is more to do."""
        with self._starting:
            if self._pool is not None:
                _end(self._pool, self.threads, self._at_exit)
                self._pool = None

    def _started(self) -> ThreadPoolExecutor:
        with self._starting:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, "qbe", initializer=_enter)
                weakref.finalize(self, self._pool.shutdown, wait=False).atexit = False
            return self._pool


_blas = threading.Lock()
_blas_users = 0
_blas_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While blocks of this kind run, numpy's products are computed in the thread that asks for them.

    Those of a few query vectors are over before a pool of threads has woken up, and the pool then spins
    against qbe's own threads. The number of before is restored when the last block ends. It does nothing
    where the environment has set OPENBLAS_NUM_THREADS to 1 before numpy was loaded, as the command does.

    >>> with one_blas_thread():
    ...     pass
    """
    global _blas_users, _blas_limit
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1" or "numpy" not in sys.modules:
        yield
        return
    from threadpoolctl import threadpool_limits

    with _blas:
        if _blas_users == 0:
            _blas_limit = threadpool_limits(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()


def _length(items: Iterable[object]) -> int:
    """How many items there are; many for a stream."""
    return len(items) if isinstance(items, Sized) else AHEAD


def _enter() -> None:
    _inside.worker = True


def _end(pool: ThreadPoolExecutor, threads: int, at_exit: Sequence[Callable[[], object]]) -> None:
    """Have each worker call the functions, and end them all."""
    if at_exit:
        meeting = threading.Barrier(threads)

        def leave() -> None:
            meeting.wait()  # so that each worker takes one of these calls
            for function in at_exit:
                function()

        for future in [pool.submit(leave) for _ in range(threads)]:
            future.result()
    pool.shutdown()


def ordered_map(
    function: Callable[[T], R], items: Iterable[T], threads: int, ahead: int = AHEAD
) -> Iterator[R]:
    """`Workers.map` for one piece of work, with threads of its own that end with it.

    >>> list(ordered_map(len, ["a", "bb", "ccc"], threads=2))
    [1, 2, 3]
    """
    with Workers(threads) as workers:
        yield from workers.map(function, items, ahead)


class Memo(Generic[T, R]):
    """A function that remembers what it gave for each object, by identity; threads may share it.

    For the duration of one piece of work, whose objects live that long.

    >>> length, words = Memo(len), ["a", "b"]
    >>> length(words), words.append("c"), length(words), length(["a"])
    (2, None, 2, 1)
    """

    def __init__(self, function: Callable[[T], R]) -> None:
        self._function = function
        self._known: dict[int, R] = {}

    def __call__(self, item: T) -> R:
        """The function's result; two threads that ask at once may both compute it."""
        if id(item) not in self._known:
            self._known[id(item)] = self._function(item)
        return self._known[id(item)]
