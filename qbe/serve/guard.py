"""What every request passes: who may ask, how much and how fast it must be sent, and what is said of it."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbe.errors import UsageError
from qbe.serve.network import guard
from qbe.serve.network.guard import LOCAL, check_access, failure, read_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.serve.service.service import SearchService

log = logging.getLogger("qbe.serve")

LOGGED, LONGEST_METHOD = 2000, 20
"""Bytes of a path, of what is searched for, and of a method, that are logged."""

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})
"""Those that are counted by their names; a client can make up others without end."""

OPEN_PATHS = frozenset({"/health"})
"""What needs no key, as the page does not either."""

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

FILE_PATH = "/api/paper-file"
MOST_FILE, MOST_FILES, FILE_SECONDS = 32_000_000, 4, 30.0
"""Bytes of a file that is sent there, files that are held at a time, seconds within which one must arrive."""

_FORMS = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "")
"""Types of bodies that pages of other sites may send without leave."""

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper limits of the buckets in which times of answers are counted."""


class ServeSettings(NamedTuple):
    """Who may ask, and what is logged.

    ``api_key`` is what requests must bring, None: nothing. ``hosts`` are the names under which the server is
    reached, None: any. ``origins`` are those of other pages that may ask. ``log_queries`` says whether what
    is searched for is logged. ``root_path`` is what a server in front puts before all paths, such as /qbe.
    """

    api_key: str | None = None
    hosts: frozenset[str] | None = LOCAL
    origins: tuple[str, ...] = ()
    log_queries: bool = False
    root_path: str = ""


def settings_for(
    host: str,
    key: str | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    *,
    log_queries: bool,
    root_path: str = "",
) -> ServeSettings:
    """Settings for a server that listens at ``host``; raises UsageError where everybody could ask, and for
    a root path that is none.

    A server for this machine alone answers only under the names of this machine and ``hosts``, so that no
    page of another site can reach it by a name that is made to lead here.

    >>> settings_for("127.0.0.1", None, ("papers.example.org",), (), log_queries=False).hosts == LOCAL | {
    ...     "papers.example.org"}
    True
    >>> settings_for("0.0.0.0", None, (), (), log_queries=False)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `key_file` with `host` 0.0.0.0, which others can reach, found none; ...
    """
    check_access(host, key)
    names = LOCAL | {name.lower() for name in hosts} if host in LOCAL or hosts else None
    root_path = root_path.rstrip("/")
    if root_path and not _ROOT_PATH.fullmatch(root_path):
        raise UsageError(f"expected a `root_path` such as /qbe, found {root_path!r}")
    return ServeSettings(key, names, origins, log_queries, root_path)


SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The variable of the environment by which several processes count together: the folder of their counts.
prometheus_client reads it when it is imported.
"""


class Metrics:
    """Requests by route and status with their times, and what the service holds: of all processes that count
    together, if there are several.
    """

    def __init__(self, service: SearchService) -> None:
        self._service, self._registry = service, CollectorRegistry()
        self._requests = Counter(
            "qbe_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "qbe_http_request_seconds",
            "Time until an answer was complete.",
            ("route",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._waiting = Gauge(
            "qbe_searches_waiting",
            "Searches not answered yet.",
            ("stage",),
            multiprocess_mode="livesum",
            registry=self._registry,
        )
        self._collected = CollectorRegistry() if SHARED_METRICS in os.environ else self._registry
        if self._collected is not self._registry:
            MultiProcessCollector(self._collected)  # type: ignore[no-untyped-call]
        self._collected.register(_Holdings(service))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` is a path of the interface, never one that a client made up."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def look(self) -> None:
        """Note how many searches wait, for this process or another that is asked for the metrics."""
        for stage, count in self._service.waiting.items():
            self._waiting.labels(stage).set(count)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        self.look()
        return generate_latest(self._collected)


class _Holdings(Collector):
    def __init__(self, service: SearchService) -> None:
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        about = self._service.about()
        yield GaugeMetricFamily("qbe_index_papers", "Papers of the index.", about["papers"])
        yield GaugeMetricFamily(
            "qbe_index_generation", "Commits since the index was built.", about["generation"]
        )


class Guard(guard.Guard):
    """Refuses what must not or need not reach the application; counts and logs every request.

    Logged are method, path, status and time; what is searched for only where the settings say so.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, metrics: Metrics, page_paths: frozenset[str]
    ) -> None:
        super().__init__(app, settings.api_key)
        self._settings, self._metrics = settings, metrics
        self._open = OPEN_PATHS | page_paths
        self._files = 0  # that are held

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> bytes:
        """Answer a request, with the headers that all answers have; returns its body."""
        begin, body = time.perf_counter(), b""
        status = 499  # what others log for a client that did not wait
        method, scope = scope["method"], _normalized(scope)

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

        is_file = self._is_file(scope)
        self._files += is_file
        try:
            body = await super().answer(scope, receive, guarded)
        finally:
            self._files -= is_file
            self._record(method, scope, status, time.perf_counter() - begin, b"" if is_file else body)
        return body

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request; a file may be longer, and take longer, than others."""
        if self._is_file(scope):
            return await read_body(receive, MOST_FILE, FILE_SECONDS)
        return await super().body(scope, receive)

    def _is_file(self, scope: Scope) -> bool:
        path: str = scope["path"].removeprefix(self._settings.root_path)
        return path == FILE_PATH and bool(scope["method"] == "POST")

    def refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that does not reach the application: under another name, without the key,
        for the root path, or with a file too many or of another site.
        """
        hosts, root_path = self._settings.hosts, self._settings.root_path
        host = _name_of(Headers(scope=scope).get("host", ""))
        if hosts is not None and host not in hosts:
            return failure(
                400, f"expected a known host, found {host!r}; start the server with --allow-host {host}"
            )
        if root_path and scope["path"] == root_path:  # the page's own addresses are relative
            return RedirectResponse(f"{root_path}/")
        if scope["path"].removeprefix(root_path) in self._open or scope["method"] == "OPTIONS":
            return None
        if self._is_file(scope):
            if self._files > MOST_FILES:
                return failure(
                    429,
                    f"expected at most {MOST_FILES} files at a time; try again in 1 s",
                    {"Retry-After": "1"},
                )
            if Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
                return failure(
                    415, "expected a file as application/octet-stream, found a body of another type"
                )
        return super().refusal(scope)

    def _record(self, method: str, scope: Scope, status: int, seconds: float, body: bytes) -> None:
        route = getattr(scope.get("route"), "path", "other")
        counted = method if route != "other" and method in METHODS else "other"
        self._metrics.count(counted, route, status, seconds)
        query_text = ""
        if self._settings.log_queries:
            query_text = " " + repr((scope["query_string"] or body)[:LOGGED].decode("utf-8", "replace"))
        path = repr(scope["path"][:LOGGED])[1:-1]
        log.info("%s %s %d %.3f s%s", method[:LONGEST_METHOD], path, status, seconds, query_text)


def _normalized(scope: Scope) -> Scope:
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
