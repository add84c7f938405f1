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
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from qbe.errors import InputError, UsageError

HEAD_SECONDS = 10.0  # within which the head of a request must arrive
MAX_CONNECTIONS, BACKLOG = 320, 256


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket, for 0 at any free port; UsageError for no port, InputError for one in use."""
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
    """HTTP/1.1 that drops clients which take too long to send the head of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch(None, self.loop.time())

    def _watch(self, before: object, since: float) -> None:
        """Look, again and again, for how long no request has begun."""
        now, is_idle = self.loop.time(), self.cycle is None or self.cycle.response_complete
        since = since if self.cycle is before else now
        if is_idle and now - since > HEAD_SECONDS:
            self.transport.close()
        if not self.transport.is_closing():
            self.loop.call_later(HEAD_SECONDS / 4, self._watch, self.cycle, since if is_idle else now)


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

    Each process calls ``make_app``, which must be importable by its name. SIGHUP replaces them one by one.
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
