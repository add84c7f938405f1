"""Sockets that listen."""

from __future__ import annotations

import socket

from qbe.errors import InputError, UsageError

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
