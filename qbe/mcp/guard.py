"""What every request over HTTP must keep to: a key, where one is wanted, and a body of limited length."""

from __future__ import annotations

import contextlib

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from qbe.network.access import key_problem
from qbe.network.bodies import BodyError, ClientGoneError, read_body, replayed


class Guard:
    """Refuses requests without the key (401), and those whose body is too long (413) or slow (408)."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app, self._key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if problem := key_problem(Headers(scope=scope), self._key):
            await _refusal(401, problem, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        with contextlib.suppress(ClientGoneError):
            try:
                body = await read_body(receive)
            except BodyError as error:
                await _refusal(error.status, str(error), {"Connection": "close"})(scope, receive, send)
                return
            await self._app(scope, replayed(body, receive), send)


def _refusal(status: int, message: str, headers: dict[str, str]) -> JSONResponse:
    return JSONResponse({"error": {"message": message}}, status, headers)
