"""The application: routes over a service, behind a guard, following the index."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from qbe.errors import QbeError
from qbe.feeds.reports import Watcher
from qbe.label.by_hand import HandGrades
from qbe.serve import routes
from qbe.serve.guard import Guard, Metrics, ServeSettings, failure
from qbe.serve.service import SearchService

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
    state.metrics, state.ready = Metrics(service), threading.Event()
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
