"""What every request over HTTP must keep to: a key, where one is wanted, and a body of limited length."""

from __future__ import annotations

import hmac
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbe.errors import UsageError, input_error

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine, for itself."""

SHORTEST_KEY = 16
LONGEST_BODY = 1_000_000


class _TooLongError(Exception):
    pass


class Guard:
    """Refuses requests without the key (401), and those whose body is too long (413)."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app = app
        self._expected = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._expected is not None:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refusal = _refusal(401, "expected the key of this server (Authorization: Bearer KEY)")
                refusal.headers["WWW-Authenticate"] = "Bearer"
                await refusal(scope, receive, send)
                return
        length = headers.get(b"content-length", b"0")
        too_long = _refusal(413, f"expected a body of at most {LONGEST_BODY:,} bytes, found a longer one")
        if not length.isdigit() or int(length) > LONGEST_BODY:
            await too_long(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > LONGEST_BODY:
                raise _TooLongError
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLongError:
            await too_long(scope, receive, send)


def _refusal(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message}}, status)


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
    r"""The key in a file, its first line; raises InputError, UsageError for one that is too short.

    >>> _ = Path("key").write_text("a-key-that-is-long-enough\n")
    >>> read_key("key")
    'a-key-that-is-long-enough'
    """
    try:
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
