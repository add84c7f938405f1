"""Listening, limits of connections, and servers in one process or several."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from qbe.errors import InputError, UsageError

HEAD_SECONDS, READ_SECONDS = 10.0, 30.0
"""Within which the head of a request must arrive, and a client must read some of a response."""

MAX_CONNECTIONS, BACKLOG = 320, 256
LINGER_SECONDS = 0.5
"""How long a server that ends waits for a next request of its open connections."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 is any free one.

    Raises UsageError for a number that is no port, InputError for one that is taken.
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch((), 0)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self, before: tuple[Any, ...], since: float) -> None:
        """Look, again and again, for how long nothing has happened to the connection."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        state = id(self.cycle), self._is_answering, unread
        since = since if state == before else now
        if unread and now - since > READ_SECONDS:
            self.transport.abort()  # closing would wait for the client as well
        elif not self._is_answering and now - since > HEAD_SECONDS:
            self.transport.close()
        if not self.transport.is_closing():
            self.loop.call_later(min(HEAD_SECONDS, READ_SECONDS) / 4, self._watch, state, since)

    def _close_if_idle(self) -> None:
        if not self._is_answering:
            self.transport.close()

    def shutdown(self) -> None:
        """Answer a request that is just coming as the last one: another worker answers the client's next."""
        if CLOSE_HEADER not in self.server_state.default_headers:
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        if self._is_answering:
            self.cycle.default_headers = self.server_state.default_headers
            super().shutdown()
        else:
            self.loop.call_later(LINGER_SECONDS, self._close_if_idle)


def server_of(app: Any, **settings: Any) -> uvicorn.Server:
    """A server whose ``run(sockets=[...])`` answers until SIGINT or SIGTERM, and finishes what it has."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=20,
        timeout_worker_healthcheck=600,  # within which a worker must have opened the index
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=65_536,
        **settings,
    )
    return uvicorn.Server(config)


def serve_with_workers(make_app: Callable[[], Any], workers: int, listening: socket.socket) -> None:
    """Answer requests with several processes until SIGINT or SIGTERM, then finish those under way.

    Each process calls ``make_app``, which must be importable by its name. SIGHUP replaces them one after the
    other.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # a qbe.py in the working directory is not imported
    # Read by glibc when a process starts: arenas of many threads would hold what was freed in others.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    server = server_of(partial(_worker_app, make_app), factory=True, workers=workers)
    Multiprocess(server.config, [listening]).run()


def _worker_app(make_app: Callable[[], Any]) -> Any:
    """The application of a worker, which ends with the process that started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    return make_app()
