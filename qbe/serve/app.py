"""The application: routes over a service, behind a guard, following the index, in one process or several."""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from importlib.metadata import version
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from qbe.errors import InputError, QbeError, UsageError
from qbe.feeds.watches import Watcher
from qbe.label.grading import HandGrades
from qbe.serve import routes
from qbe.serve.guard import Guard, Metrics, ServeSettings, failure
from qbe.serve.service import SearchService

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
    _Workers(server.config, [listening]).run()


class _Workers(Multiprocess):
    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.child_conn.close()  # so that its death ends the wait for its answer
        super().keep_subprocess_alive()


def _worker_app(make_app: Callable[[], Any]) -> Any:
    """The application of a worker, which ends with the process that started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    return make_app()


log = logging.getLogger("qbe.serve")

REFRESH_SECONDS = 2.0  # how often a newer generation of the index is looked for
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def create_app(
    service: SearchService,
    settings: ServeSettings = ServeSettings(),  # noqa: B008
    watcher: Watcher | None = None,
    hands: HandGrades | None = None,
    *,
    is_warm: bool = False,
) -> ASGIApp:
    """Make an ASGI application over a service, which stays open when it ends. It warms the service when it
    starts, unless it ``is_warm``; ``watcher`` keeps searches, ``hands`` grades that are given by hand.
    """
    state = State()
    state.service, state.watcher, state.hands = service, watcher, hands
    state.metrics, state.ready = Metrics(service.about, service.turns), threading.Event()
    state.unreadable = ""  # why the newest generation cannot be read
    if is_warm:
        state.ready.set()
    files = page_files()
    headers = ["Authorization", "Content-Type", "X-API-Key"]
    cors = Middleware(
        CORSMiddleware, allow_origins=settings.origins, allow_methods=["GET", "POST"], allow_headers=headers
    )
    app = Starlette(
        routes=[
            *routes.routes_of(state, settings.root_path, version("qbe")),
            *(
                Route(path, Response(content, 200, {"Cache-Control": "no-cache"}, kind), methods=["GET"])
                for path, (content, kind) in files.items()
            ),
        ],
        middleware=[cors] if settings.origins else [],
        exception_handlers={QbeError: routes.failure_of, HTTPException: _http_error, Exception: _unexpected},
        lifespan=_lifespan,
    )
    app.state = state
    return Guard(app, settings, state.metrics, frozenset(files) | {"/health"})


def page_files() -> dict[str, tuple[bytes, str]]:
    """Content and media type of the page's files by path; ``/`` is the page itself."""
    files = {}
    for file in (resources.files("qbe.serve") / "page").iterdir():
        name, _, ending = file.name.rpartition(".")
        if ending in MEDIA_TYPES:
            path = "/" if name == "index" else f"/{file.name}"
            files[path] = (file.read_bytes(), f"{MEDIA_TYPES[ending]}; charset=utf-8")
    return files


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    task = asyncio.create_task(_follow(app))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(app: Starlette) -> None:
    """Warm the service, then follow the index, until the application ends."""
    state = app.state
    if not state.ready.is_set():
        await asyncio.to_thread(state.service.warm)
        state.ready.set()
    log.info("ready")

    def find_new() -> None:
        try:
            if state.watcher is not None:
                state.watcher.find()
        except Exception as error:  # whatever is wrong with watches, searches are answered
            log.error("%s: %s", type(error).__name__, error, exc_info=not isinstance(error, QbeError))

    await asyncio.to_thread(find_new)
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        try:
            state.metrics.update()
            if await asyncio.to_thread(state.service.index.refresh):
                log.info("a newer commit of the index: %d papers", len(state.service.index))
                await asyncio.to_thread(state.service.complete, "", 1)  # reads titles
                await asyncio.to_thread(find_new)
            state.unreadable = ""
        except Exception as error:  # the next generation may be readable; until then the last one is served
            found = f"{type(error).__name__}: {error}"
            if found != state.unreadable:
                log.error("%s", found, exc_info=not isinstance(error, QbeError))
            state.unreadable = found


async def _http_error(request: Request, error: Exception) -> Response:
    """Say what can be asked; OPTIONS is answered so, too."""
    assert isinstance(error, HTTPException)
    headers, described = dict(error.headers or {}), f"{request.scope['root_path']}/openapi.json"
    message = str(error.detail)
    if error.status_code == 404:
        message = f"expected an address of the interface, found {request.url.path}; see {described}"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(sorted({*headers["Allow"].split(", "), "OPTIONS"}))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        message = f"expected one of {headers['Allow']}, found {request.method}; see {described}"
    return failure(error.status_code, message, headers)


async def _unexpected(_: Request, error: Exception) -> Response:
    log.error("an error that should not happen", exc_info=error)
    return failure(500, "something went wrong in the server; its log says what")
