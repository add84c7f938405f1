"""Guard of a server: host names, API key, limits of requests, headers, metrics, and the log of requests."""

import asyncio
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbe.errors import UsageError, input_error
from qbe.serve.turns import Turns, client, client_at
from qbe.util.text import one_line

log = logging.getLogger("qbe.serve")

MIN_KEY = 16
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})  # names of this machine
MAX_HEAD = 65_536  # bytes of a path and of headers
MAX_BODY, BODY_SECONDS = 1_000_000, 10.0
# Bytes of a body that is too long which are read before it is refused: a client that is still sending when
# its connection is closed never sees the answer.
MAX_DISCARDED = 20_000_000
FILE_PATH = "/api/paper-file"
MAX_FILE, FILE_SECONDS, MAX_FILES = 32_000_000, 30.0, 4  # bytes, seconds to arrive, files held at a time
# Characters of an error message; bytes of a path or a query, and of a method, in the log.
MAX_MESSAGE, MAX_LOGGED, MAX_METHOD = 500, 2000, 20
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})  # that metrics name; clients can invent others

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Content types that pages of other sites may send without a preflight request.
_FORMS = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "")
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# The variable with the folder of counts that processes share; prometheus_client reads it when it is imported.
SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"


class ServeSettings(NamedTuple):
    """Who may send requests, and what is logged."""

    api_key: str | None = None  # that requests must bring
    hosts: frozenset[str] | None = LOCAL  # in their Host header; None: any
    origins: tuple[str, ...] = ()  # of other sites
    log_queries: bool = False
    root_path: str = ""  # such as /qbe


def settings_for(
    host: str,
    key: str | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    *,
    log_queries: bool,
    root_path: str = "",
) -> ServeSettings:
    """Settings of a server that listens at ``host``; raises UsageError where everybody could use it.

    A local server answers only under the names of this machine and ``hosts``, so that no page of another site
    can reach it by a name that resolves to this machine.
    """
    check_access(host, key)
    names = LOCAL | {name.lower() for name in hosts} if host in LOCAL or hosts else None
    root_path = root_path.rstrip("/")
    if root_path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", root_path):
        raise UsageError(f"expected a `root_path` such as /qbe, found {root_path!r}")
    return ServeSettings(key, names, origins, log_queries, root_path)


def check_access(host: str, key: str | None) -> None:
    """Raise UsageError for a host that others can reach without a key."""
    if host not in LOCAL and key is None:
        raise UsageError(
            f"expected `key_file` with `host` {host}, which others can reach, found none; write a key of "
            f"{MIN_KEY} or more characters into a file, or leave `host` out"
        )


def read_key(path: str) -> str:
    """Read the API key in the first line of a file; warn where others may read the file."""
    try:
        if Path(path).stat().st_mode & 0o077:
            log.warning("%s: others may read this key; chmod 600 it", path)
        key = Path(path).read_text(encoding="ascii").partition("\n")[0].strip()
    except OSError as error:
        raise input_error(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the API key must be ASCII") from None
    if len(key) < MIN_KEY or not key.isprintable() or " " in key:
        raise UsageError(
            f"{path}: expected a key of {MIN_KEY} or more characters without spaces in the first line, "
            f"found {len(key)}"
        )
    return key


def failure(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Make the response of an error."""
    return JSONResponse({"error": {"message": one_line(message)[:MAX_MESSAGE]}}, status, headers)


class Metrics(Collector):
    """Counts and times of requests by route and status, of all workers, and the size of the index."""

    def __init__(self, index: Callable[[], dict[str, Any]], turns: Turns) -> None:
        self._index, self._turns, registry = index, turns, CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter("qbe_http_requests", "Requests answered.", labels, registry=registry)
        name, about = "qbe_http_request_seconds", "Time until an answer was complete."
        self.seconds = Histogram(name, about, ("route",), buckets=BUCKETS, registry=registry)
        name, about = "qbe_searches_waiting", "Searches not answered yet."
        self._waiting = Gauge(name, about, multiprocess_mode="livesum", registry=registry)
        self._collected = registry
        if SHARED_METRICS in os.environ:
            self._collected = CollectorRegistry()
            MultiProcessCollector(self._collected)  # type: ignore[no-untyped-call]
        self._collected.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        about, commits = self._index(), "Commits since the index was built."
        yield GaugeMetricFamily("qbe_index_papers", "Papers of the index.", about["papers"])
        yield GaugeMetricFamily("qbe_index_generation", commits, about["generation"])

    def update(self) -> None:
        """Publish how many searches wait, for the worker that answers /metrics."""
        self._waiting.set(self._turns.waiting)

    def text(self) -> bytes:
        self.update()
        return generate_latest(self._collected)


class Guard:
    """ASGI middleware that refuses requests from elsewhere (400), without the key (401), too long (413, 431)
    or slow (408), adds security headers, and counts and logs every request. ``free`` paths need no key.

    A body is read before the application is called, so that a slow client holds no thread. The log has
    method, path, status and time; queries only if the settings say so, keys never.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, metrics: Metrics | None = None, free: Container[str] = ()
    ) -> None:
        self._app, self._settings, self._metrics, self._free = app, settings, metrics, free
        self._files = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, body, is_complete = time.perf_counter(), b"", False
        client.set(client_at((scope["client"] or [""])[0]))
        status = 499  # logged for a client that did not wait
        scope["root_path"] = self._settings.root_path
        path = scope["path"].removeprefix(scope["root_path"])
        is_file = scope["method"] == "POST" and path == FILE_PATH

        async def send_with_headers(message: Message) -> None:
            nonlocal status, is_complete
            is_complete = message["type"] == "http.response.body" and not message.get("more_body")
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            if is_complete:  # counted before the client can know
                record()
            await send(message)

        def record() -> None:
            self._record(scope, status, time.perf_counter() - begin, b"" if is_file else body)

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not is_complete:
                answering.cancel()

        self._files += is_file
        try:
            answer: ASGIApp | None = self._refusal(scope, path, is_file=is_file)
            if answer is None:
                limits = (MAX_FILE, FILE_SECONDS) if is_file else (MAX_BODY, BODY_SECONDS)
                body, answer = await _read_body(Request(scope, receive), *limits)
            messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
            answering = asyncio.ensure_future((answer or self._app)(scope, replay, send_with_headers))
            gone = asyncio.ensure_future(until_gone())
            try:
                await answering
            except asyncio.CancelledError:
                if not gone.done():
                    raise
            finally:
                gone.cancel()
        except ClientDisconnect:
            pass
        finally:
            self._files -= is_file
            if not is_complete:
                record()

    def _refusal(self, scope: Scope, path: str, *, is_file: bool) -> Response | None:
        key, hosts, *_, root_path = self._settings
        head = len(scope["raw_path"]) + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if head > MAX_HEAD:
            return failure(431, f"expected a path and headers of at most {MAX_HEAD:,} bytes, found more")
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if hosts is not None and host not in hosts:
            found = f"found {host!r}; start the server with --allow-host {host}"
            return failure(400, f"expected a known host, {found}")
        if root_path and scope["path"] == root_path:  # URLs in the page are relative
            return RedirectResponse(f"{root_path}/")
        if path in self._free or scope["method"] == "OPTIONS":
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        # Of a program a body is read whatever its type, as that of `curl -d`.
        is_page = "origin" in headers or "sec-fetch-site" in headers
        if scope["method"] == "POST" and is_page and kind in _FORMS:
            expected = "application/octet-stream" if is_file else "application/json"
            return failure(415, f"expected a body of the type {expected}, found {kind or 'none'}")
        if is_file and self._files > MAX_FILES:
            message = f"expected at most {MAX_FILES} files at a time; try again in 1 s"
            return failure(429, message, {"Retry-After": "1"})
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if key is None or hmac.compare_digest(given.encode(), key.encode()):
            return None
        found = "another one" if given else "none"
        message = f"expected an API key in the header Authorization: Bearer KEY, found {found}"
        return failure(401, message, {"WWW-Authenticate": "Bearer"})

    def _record(self, scope: Scope, status: int, seconds: float, body: bytes) -> None:
        method, route = scope["method"], getattr(scope.get("route"), "path", "other")
        if self._metrics is not None:
            counted = method if route != "other" and method in METHODS else "other"
            self._metrics.requests.labels(counted, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
        query = ""
        if self._settings.log_queries:
            query = " " + repr((scope["query_string"] or body)[:MAX_LOGGED].decode(errors="replace"))
        path = repr(scope["path"][:MAX_LOGGED])[1:-1]
        log.info("%s %s %d %.3f s%s", method[:MAX_METHOD], path, status, seconds, query)


async def _read_body(request: Request, limit: int, limit_s: float) -> tuple[bytes, Response | None]:
    """Read a body; with it comes the response to one that is too slow or too long."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(limit_s):
            async for part in request.stream():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > max(limit, MAX_DISCARDED):
                    break
    except TimeoutError:
        return b"", failure(408, f"expected the request within {limit_s:g} s", {"Connection": "close"})
    if size > limit:
        return b"", failure(413, f"expected a request of at most {limit:,} bytes", {"Connection": "close"})
    return b"".join(parts), None
