"""Bodies of requests, read within limits before an application is called."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

MOST_BYTES, MOST_DISCARDED = 1_000_000, 20_000_000
"""Bytes of a request's body that are taken, and those of a longer one that are read before it is refused."""

BODY_SECONDS = 10.0
"""Within which a body must arrive."""


class BodyError(Exception):
    """A body that is refused; ``status`` is that of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientGoneError(Exception):
    """The client left before its request was complete."""


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request; raises BodyError for one that is too long or too slow, ClientGoneError.

    What is too long is read on for a while, and forgotten: a client that is still sending when its connection
    is closed never sees the answer.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part = message.get("body", b"")
                size += len(part)
                if size <= MOST_BYTES:
                    parts.append(part)
                if size > MOST_DISCARDED or not message.get("more_body", False):
                    break
    except TimeoutError:
        raise BodyError(408, f"expected the request within {BODY_SECONDS:g} s") from None
    if size > MOST_BYTES:
        raise BodyError(413, f"expected a request of at most {MOST_BYTES:,} bytes")
    return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A function that gives a body that was read, then what else comes."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
