"""What every request passes: who may ask, how much and how fast it must be sent, and what is said of it."""

from __future__ import annotations

import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbe.network.access import key_problem
from qbe.network.bodies import BodyError, ClientGoneError, read_body, replayed
from qbe.serve.failures import failure
from qbe.serve.metrics import Metrics
from qbe.serve.settings import ServeSettings

log = logging.getLogger("qbe.serve")

LOGGED, LONGEST_METHOD = 2000, 20
"""Bytes of a path, of what is searched for, and of a method, that are logged."""

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
"""Those that are counted by their names; a client can make up others without end."""

OPEN_PATHS = frozenset({"/health"})
"""What needs no key, beside the page."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Refuses what must not or need not reach the application; counts and logs every request.

    Bodies are read before the application is called, so that a client that sends slowly holds no thread.
    Logged are method, path, status and time; what is searched for only where the settings say so.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, metrics: Metrics, page_paths: frozenset[str]
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._open = OPEN_PATHS | page_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, body = time.perf_counter(), 500, b""
        method, scope = scope["method"], _as_meant(scope)

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                try:
                    body = await read_body(receive)
                except BodyError as error:
                    refusal = failure(error.status, str(error), {"Connection": "close"})
            if refusal is not None:
                await refusal(scope, receive, guarded)
            else:
                await self._app(scope, replayed(body, receive), guarded)
        except ClientGoneError:
            status = 499  # what others log for a client that did not wait
        finally:
            self._record(method, scope, status, time.perf_counter() - begin, body)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, hosts = Headers(scope=scope), self._settings.hosts
        root_path = self._settings.root_path
        host = _name_of(headers.get("host", ""))
        if hosts is not None and host not in hosts:
            return failure(
                400, f"expected a known host, found {host!r}; start the server with --allow-host {host}"
            )
        if root_path and scope["path"] == root_path:  # the page's own addresses are relative
            return RedirectResponse(f"{root_path}/")
        key = self._settings.api_key
        if key is None or scope["path"].removeprefix(root_path) in self._open or scope["method"] == "OPTIONS":
            return None
        problem = key_problem(headers, key)
        return None if problem is None else failure(401, problem, {"WWW-Authenticate": "Bearer"})

    def _record(self, method: str, scope: Scope, status: int, seconds: float, body: bytes) -> None:
        route = getattr(scope.get("route"), "path", "other")
        known = method if route != "other" and method in METHODS else "other"
        self._metrics.count(known, route, status, seconds)
        query_text = ""
        if self._settings.log_queries:
            query_text = " " + repr((scope["query_string"] or body)[:LOGGED].decode("utf-8", "replace"))
        path = repr(scope["path"][:LOGGED])[1:-1]
        log.info("%s %s %d %.3f s%s", method[:LONGEST_METHOD], path, status, seconds, query_text)


def _as_meant(scope: Scope) -> Scope:
    """A request as the application knows it: HEAD is answered like GET, and the server leaves the body out.

    A body is JSON even where its type says otherwise, as that of `curl -d` does; that of a page in a browser
    is not, since pages of other sites could send it without leave.
    """
    scope = {**scope, "method": "GET" if scope["method"] == "HEAD" else scope["method"]}
    names = {name for name, _ in scope["headers"]}
    if scope["method"] == "POST" and not names & {b"origin", b"sec-fetch-site"}:
        others = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]
    return scope


def _name_of(host: str) -> str:
    """The name in a Host header, without the port.

    >>> _name_of("LOCALHOST:8765"), _name_of("[::1]:8765")
    ('localhost', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
