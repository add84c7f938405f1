"""Listening, limits of connections, and ending when told to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from qbe.errors import InputError, UsageError

HEADER_SECONDS, READ_SECONDS = 10.0, 30.0
"""Within which the head of a request must arrive, and a client must read some of an answer."""

MOST_CONNECTIONS, SPARE_CONNECTIONS = 256, 64
"""Connections that are kept, and those beyond that may be answering; further ones are refused."""

MOST_HEADER_BYTES, PIECE_BYTES = 65_536, 4096
"""Bytes of the head of a request, and those that are looked at together."""

KEEP_ALIVE_SECONDS, GRACE_SECONDS = 10, 20
LINGER_SECONDS = 0.5
"""How long a server that ends waits for the next request of a connection, which it answers as the last."""

LAST_PORT = 65_535
WAITING = 256
"""Connections that may wait until they are accepted."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any free one. Raises UsageError for what is no port, InputError where
    it cannot be had.

    >>> with listen("127.0.0.1", 0) as listening:
    ...     address_of(listening).startswith("http://127.0.0.1:")
    True
    """
    if not 0 <= port <= LAST_PORT:
        raise UsageError(f"expected `port` from 0 to {LAST_PORT}, found {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. Without it the body of an answer waits 40 ms for the client to confirm its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((host, port))
        listening.listen(WAITING)
    except OSError as error:
        listening.close()
        raise InputError(
            f"expected a free port at {host}, found that {port} cannot be had ({error.strerror or error}); "
            "choose another `port`"
        ) from None
    return listening


def address_of(listening: socket.socket, path: str = "/") -> str:
    """The address that a socket is reached at."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


class Protocol(H11Protocol):
    """HTTP/1.1 that closes connections of clients that take too long: to begin a request, to end its head, or
    to read an answer.
    """

    _began = 0.0
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request; where there are too many connections, the one that has waited
        longest for a request gives way, so that clients that never finish theirs keep out nobody.
        """
        super().connection_made(transport)
        self._began = self.loop.time()
        self._expect()
        others = [each for each in self.connections if isinstance(each, Protocol) and each is not self]
        kept = [each for each in others if not each.transport.is_closing()]
        waiting = [each for each in kept if not each._is_answering()]
        if len(kept) >= MOST_CONNECTIONS and waiting:
            min(waiting, key=lambda each: each._began).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Wait on only while the head of a request is not complete.

        h11 limits a head only as long as it is incomplete: one that a single read completes would be taken
        whatever its length.
        """
        for start in range(0, len(data), PIECE_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + PIECE_BYTES])
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        self._stop_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client, which has more to read than is held for it."""
        super().pause_writing()
        # Closing would wait for the client as well.
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._stop_reading()
        super().resume_writing()

    def shutdown(self) -> None:
        """End, after the request under way or one that is on its way; see `Server.shutdown`."""
        if self._is_answering():
            self.cycle.default_headers = self.server_state.default_headers
            super().shutdown()
        else:
            self.loop.call_later(LINGER_SECONDS, self._give_up)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _expect(self) -> None:
        if self._is_answering():
            self._stop()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up(self) -> None:
        self._deadline = None
        if not self._is_answering():
            self.transport.close()

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def config_of(app: Any, **settings: Any) -> uvicorn.Config:
    """How an application is served; ``settings`` are further ones of uvicorn's."""
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
        limit_concurrency=MOST_CONNECTIONS + SPARE_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        **settings,
    )


def server_of(app: ASGIApp, started: Callable[[], None]) -> Server:
    """A server whose ``run(sockets=[...])`` answers requests until SIGINT or SIGTERM, and then finishes those
    under way; ``started`` is called once requests are answered.
    """
    return Server(config_of(app), started)


class Server(uvicorn.Server):
    """A server that calls a function once it answers requests."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer requests."""
        await super().startup(sockets)
        if self.started:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and end those there are, each with an answer that says so: a client that
        sends its next request just now would lose it otherwise, and another process may answer that.
        """
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        await super().shutdown(sockets)
