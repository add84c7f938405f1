"""Listening, limits of connections, and servers in one process or several."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from qbe.errors import InputError, UsageError
from qbe.util.work import import_nothing_from_working_directory

log = logging.getLogger("qbe.serve")

HEAD_SECONDS, READ_SECONDS = 10.0, 30.0
"""Within which the head of a request must arrive, and a client must read some of a response."""

MAX_CONNECTIONS, BACKLOG = 320, 256
MAX_HEAD, PIECE = 65_536, 4096
"""Bytes of the head of a request, and bytes that are parsed at a time."""

KEEP_ALIVE_SECONDS, GRACE_SECONDS = 10, 20
LINGER_SECONDS = 0.5
"""How long a server that ends waits for a next request of its open connections."""

START_SECONDS = 600
"""Within which a worker must have opened the index."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 is any free one.

    Raises UsageError for a number that is no port, InputError for one that is taken.

    >>> with listen("127.0.0.1", 0) as listening:
    ...     address_of(listening).startswith("http://127.0.0.1:")
    True
    """
    if not 0 <= port <= 65_535:
        raise UsageError(f"expected `port` from 0 to 65535, found {port}")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by connections; without it the body of a response waits 40 ms until its head is confirmed.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InputError(
            f"expected a free port at {host}, found that {port} cannot be had ({error.strerror or error}); "
            "choose another `port`"
        ) from None
    return listening


def address_of(listening: socket.socket, path: str = "/") -> str:
    """The URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


class Protocol(H11Protocol):
    """HTTP/1.1 that drops clients which take too long to send the head of a request or to read a response."""

    _timer: asyncio.TimerHandle | None = None

    def _expect(self, seconds: float | None, give_up: Callable[[], None] = lambda: None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, give_up)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):  # h11 limits a head only while it is incomplete
            if not self.transport.is_closing():
                super().data_received(data[start : start + PIECE])
        if self._is_answering():
            if not self.flow.write_paused:
                self._expect(None)
        elif self._timer is None:
            self._expect(HEAD_SECONDS, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect(READ_SECONDS, self.transport.abort)  # closing would wait for the client as well

    def resume_writing(self) -> None:
        self._expect(None)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer a request that is just coming as the last one: another worker answers the client's next."""
        if CLOSE_HEADER not in self.server_state.default_headers:
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        if self._is_answering():
            self.cycle.default_headers = self.server_state.default_headers
            super().shutdown()
        else:
            self.loop.call_later(LINGER_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not (self._is_answering() or self.transport.is_closing()):
            self.transport.close()


def _config(app: Any, **settings: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_worker_healthcheck=START_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD,
        **settings,
    )


def server_of(app: ASGIApp) -> uvicorn.Server:
    """A server whose ``run(sockets=[...])`` answers until SIGINT or SIGTERM, and finishes what it has."""
    return uvicorn.Server(_config(app))


class Workers(Multiprocess):
    """uvicorn's supervisor, which starts the first worker alone: what is wrong for all is said once."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, started: Callable[[], None]) -> None:
        super().__init__(config, [listening])
        self._started = started

    def init_processes(self) -> None:
        first = Process(self.config, self.sockets)
        first.start()
        if not first.wait_until_ready(START_SECONDS):
            first.kill()
            first.join()
            sys.exit(max(first.exitcode or 0, 1) if not self.signal_queue else 0)
        self._started()
        self.processes = [first, *(Process(self.config, self.sockets) for _ in range(self.processes_num - 1))]
        for process in self.processes[1:]:
            process.start()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended: a ping to one that was killed would wait for its whole timeout."""
        for place, process in enumerate(self.processes):
            if not process.process.is_alive() and not self.should_exit.is_set():
                log.error("worker %s ended (exit code %s); starting another", process.pid, process.exitcode)
                process.kill()  # closes its pipe
                process.join()
                self.processes[place] = Process(self.config, self.sockets)
                self.processes[place].start()


def serve_with_workers(
    make_app: Callable[[], Any], workers: int, listening: socket.socket, started: Callable[[], None]
) -> None:
    """Answer requests with several processes until SIGINT or SIGTERM, then finish those under way.

    Each process calls ``make_app``, which must be importable by its name. SIGHUP replaces them one after the
    other. ``started`` is called once requests are answered. Where the first worker does not start, this
    process ends with its exit code; the worker has said why.
    """
    import_nothing_from_working_directory()
    # Read by glibc when a process starts: arenas of many threads would hold what was freed in others.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    config = _config(partial(_worker_app, make_app), factory=True, workers=workers)
    Workers(config, listening, started).run()


def _worker_app(make_app: Callable[[], Any]) -> Any:
    """The application of a worker, which ends with the process that started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    return make_app()
