"""Who may ask a server, and what every request passes before an application is called: key and limits."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbe.errors import UsageError, input_error
from qbe.util.text import one_line

log = logging.getLogger("qbe.serve.network")

SHORTEST_KEY = 16
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine, for itself."""

LONGEST = 500
"""Characters of a message."""

MOST_BYTES, MOST_DISCARDED = 1_000_000, 20_000_000
"""Bytes of a request's body that are taken, and those of a longer one that are read before it is refused."""

BODY_SECONDS = 10.0
"""Within which a body must arrive."""


def check_access(host: str, key: str | None) -> None:
    """Raise UsageError where everybody could ask.

    >>> check_access("127.0.0.1", None)
    >>> check_access("0.0.0.0", None)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `key_file` with `host` 0.0.0.0, which others can reach, found none; ...
    """
    if host not in LOCAL and key is None:
        raise UsageError(
            f"expected `key_file` with `host` {host}, which others can reach, found none; write a key of "
            f"{SHORTEST_KEY} or more characters into a file, or leave `host` out"
        )


def read_key(path: str) -> str:
    r"""The key in a file, its first line, with a warning where others may read the file; raises InputError,
    UsageError for one that is too short.

    >>> _ = Path("key").write_text("a-key-that-is-long-enough\n")
    >>> read_key("key")
    'a-key-that-is-long-enough'
    """
    try:
        if Path(path).stat().st_mode & 0o077:
            log.warning("%s: others may read this key; chmod 600 it", path)
        key = Path(path).read_text(encoding="ascii").partition("\n")[0].strip()
    except OSError as error:
        raise input_error(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected a key of ASCII characters, found others") from None
    if len(key) < SHORTEST_KEY or not key.isprintable() or " " in key:
        raise UsageError(
            f"{path}: expected a key of {SHORTEST_KEY} or more characters without spaces in the first line, "
            f"found {len(key)}"
        )
    return key


def key_problem(headers: Mapping[str, str], key: str | None) -> str | None:
    """What is wrong with the key that a request brings, in ``Authorization: Bearer`` or ``X-API-Key``; None
    where nothing is, or none is wanted.

    >>> key_problem({"authorization": "Bearer a-key-that-is-long-enough"}, "a-key-that-is-long-enough")
    >>> key_problem({}, "a-key-that-is-long-enough")
    'expected an API key in the header Authorization: Bearer KEY, found none'
    """
    if key is None:
        return None
    scheme, _, given = headers.get("authorization", "").partition(" ")
    given = given.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if hmac.compare_digest(given.encode(), key.encode()):
        return None
    actual = "another one" if given else "none"
    return f"expected an API key in the header Authorization: Bearer KEY, found {actual}"


class BodyError(Exception):
    """A body that is refused; ``status`` is that of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientGoneError(Exception):
    """The client left before its request was complete."""


async def read_body(receive: Receive, most: int, seconds: float) -> bytes:
    """The whole body of a request, of at most so many bytes; raises BodyError for one that is too long or
    too slow, ClientGoneError.

    What is too long is read on for a while, and forgotten: a client that is still sending when its connection
    is closed never sees the answer.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part = message.get("body", b"")
                size += len(part)
                if size <= most:
                    parts.append(part)
                if size > max(most, MOST_DISCARDED) or not message.get("more_body", False):
                    break
    except TimeoutError:
        raise BodyError(408, f"expected the request within {seconds:g} s") from None
    if size > most:
        raise BodyError(413, f"expected a request of at most {most:,} bytes")
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


def failure(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    r"""An answer that says what is wrong.

    >>> failure(404, "no such\npaper").body
    b'{"error":{"message":"no such paper"}}'
    """
    return JSONResponse({"error": {"message": one_line(message)[:LONGEST]}}, status, headers)


class Guard:
    """Refuses requests without the key (401), and those whose body is too long (413) or slow (408).

    Bodies are read before the application is called, so that a client that sends slowly holds no thread.
    """

    def __init__(self, app: ASGIApp, key: str | None = None) -> None:
        self._app, self._key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on to the application."""
        if scope["type"] == "http":
            await self.answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> bytes:
        """Answer a request over HTTP; returns its body, empty where it was refused."""
        body, refusal = b"", self.refusal(scope)
        if refusal is None:
            try:
                body = await self.body(scope, receive)
            except ClientGoneError:
                return body
            except BodyError as error:
                refusal = failure(error.status, str(error), {"Connection": "close"})
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, replayed(body, receive), send)
        return body

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request; raises what `read_body` does."""
        del scope
        return await read_body(receive, MOST_BYTES, BODY_SECONDS)

    def refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that must not reach the application; None for others."""
        problem = key_problem(Headers(scope=scope), self._key)
        return None if problem is None else failure(401, problem, {"WWW-Authenticate": "Bearer"})
