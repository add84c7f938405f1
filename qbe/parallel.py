"""A function over a stream, several items at a time, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ordered_map(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """``function`` of each item, in order; ``threads`` are under way, and few are read ahead.

    With one thread, or none for no items, the calling one does the work.
    """
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[R]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) >= 8 * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


class Memo(Generic[T, R]):
    """A function that remembers what it gave for each object, by identity; threads may share it.

    For the duration of one piece of work, whose objects live that long.
    """

    def __init__(self, function: Callable[[T], R]) -> None:
        self._function = function
        self._known: dict[int, R] = {}

    def __call__(self, item: T) -> R:
        """The function's result; two threads that ask at once may both compute it."""
        if id(item) not in self._known:
            self._known[id(item)] = self._function(item)
        return self._known[id(item)]
