"""Java's handlers of signals, which Ray would replace."""

import contextlib
import ctypes
import signal
from collections.abc import Iterator

FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)

_ACTION_BYTES = 256
"""More than a ``struct sigaction`` of any platform has."""


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """The handlers of FATAL are afterwards what they were before the block.

    A running Java handles SIGSEGV and SIGBUS as a part of its ordinary work (null checks, safepoints). Ray
    sets its own handlers where a process connects, and the default ones where it disconnects: the next such
    signal would end the process. Python's ``signal`` module knows the handlers of Python alone, so that those
    of the C library are read and written. No other thread should be within Java during the block.
    """
    library = ctypes.CDLL(None)
    before = {number: ctypes.create_string_buffer(_ACTION_BYTES) for number in FATAL}
    for number, action in before.items():
        library.sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in before.items():
            library.sigaction(int(number), action, None)
