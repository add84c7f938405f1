"""FAISS's settings of the whole process, which searching and building want different values of.

Searching has FAISS compare vectors one by one: by matrix products, which it uses for many vectors at a time,
rankings would depend on what else is searched for. Building has it use matrix products, for speed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

ONE_BY_ONE = 2**31 - 1
"""Query vectors from which on FAISS uses matrix products when it searches: never."""

TOGETHER = 20
"""Vectors from which on FAISS uses matrix products when it builds (its own default)."""

_state = threading.Condition()
_unlimited = _builds = 0


def set_for_searching(threads: int) -> None:
    """Have FAISS search with this many threads, comparing vectors one by one; for whoever opens an index."""
    import faiss

    faiss.omp_set_num_threads(threads)
    with _state:
        if not _builds:
            faiss.cvar.distance_compute_blas_threshold = ONE_BY_ONE


@contextmanager
def searching() -> Iterator[int]:
    """A context for one search of FAISS; gives how many query vectors it may take at a time.

    While an index is built in the same process these are so few that FAISS compares them one by one, so that
    the results are those of any other time.

    >>> with searching() as most:
    ...     most == ONE_BY_ONE
    True
    """
    global _unlimited
    with _state:
        limited = _builds > 0
        _unlimited += not limited
    try:
        yield TOGETHER - 1 if limited else ONE_BY_ONE
    finally:
        with _state:
            _unlimited -= not limited
            _state.notify_all()


@contextmanager
def building(threads: int) -> Iterator[None]:
    """A context for work that builds a FAISS index with this many threads; afterwards the settings are
    those of searching.

    Searches under way are waited for; those that begin meanwhile are neither delayed nor waited for, since
    they take few query vectors at a time (see `searching`).

    >>> with building(threads=1), searching() as most:
    ...     most
    19
    """
    global _builds
    import faiss

    before = faiss.omp_get_max_threads()
    with _state:
        _builds += 1
    try:
        with _state:
            _state.wait_for(lambda: not _unlimited)
            faiss.cvar.distance_compute_blas_threshold = TOGETHER
        faiss.omp_set_num_threads(threads)
        yield
    finally:
        faiss.omp_set_num_threads(before)
        with _state:
            _builds -= 1
            if not _builds:
                faiss.cvar.distance_compute_blas_threshold = ONE_BY_ONE
