"""Joining or starting a Ray cluster; the only module of this package that imports Ray by itself."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbe.errors import QbeError, UsageError, check_package

LOCAL, AUTO = "local", "auto"
CONNECT_SECONDS = 5.0
FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_ACTION_BYTES = 256  # more than a ``struct sigaction`` of any platform has


class ClusterError(QbeError):
    """A cluster cannot be reached, or lost what is needed."""


@contextlib.contextmanager
def connected(address: str, threads: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster until the block ends: a new one of this machine alone for
    LOCAL, that of this machine or of RAY_ADDRESS for AUTO, else the one at ``address`` (host:port).

    ``threads`` are the processors of a new cluster. Within a connection that exists already nothing is
    connected or ended. Raises MissingDependencyError without Ray, ClusterError where there is no cluster.
    """
    # Ray would otherwise look for a newer version, and count its users.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = check_package("ray")
    if ray.is_initialized():
        yield ray
        return
    if not address:
        raise UsageError("expected `cluster` local, auto or an address such as 10.0.0.1:6379, found none")
    own = {"num_cpus": threads, "include_dashboard": False} if address == LOCAL else {}
    try:
        if address not in (LOCAL, AUTO):  # Ray would end the process where nothing answers
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if not port.isdecimal():
                raise ValueError("no port")
            socket.create_connection((host or "localhost", int(port)), CONNECT_SECONDS).close()
        # Ray's workers import from the folder that it is started in: one from which they do so anyway.
        with handlers_kept(), contextlib.chdir(Path(ray.__file__).parent.parent):
            ray.init(address, **own, namespace="qbe", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ClusterError(
            f"expected a Ray cluster at {address}, found none ({reason}); start one with: ray start --head"
        ) from error
    try:
        yield ray
    finally:
        with handlers_kept():
            ray.shutdown()


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
