"""The application: routes over a service, behind a guard, following the index."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp

from qbe.errors import QbeError
from qbe.feeds.reports import Watcher
from qbe.label.by_hand import HandGrades
from qbe.serve import routes
from qbe.serve.guard import Guard, Metrics, ServeSettings, failure
from qbe.serve.models import problem_in_words
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
    app = FastAPI(
        title="qbe",
        version=version("qbe"),
        description="Find papers like this one, for its problem, its method or its findings.",
        docs_url=None,  # pages that load scripts from elsewhere
        redoc_url=None,
        lifespan=_lifespan,
        root_path=settings.root_path,
    )
    state = app.state
    state.service, state.watcher, state.hands = service, watcher, hands
    state.metrics, state.ready = Metrics(service), threading.Event()
    state.unreadable = ""  # why the newest generation cannot be read
    if is_warm:
        state.ready.set()
    routers = [routes.api, routes.operations, *([] if watcher is None else [routes.watching])]
    for router in routers:
        app.include_router(router)
    _add_handlers(app)
    files = page_files()
    for path, (content, media_type) in files.items():
        app.add_api_route(path, _file(content, media_type), include_in_schema=False)
    state.routes = [*app.routes, *(route for router in routers for route in router.routes)]
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
        )
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


def _file(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return answer


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    task = asyncio.create_task(_follow(app))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(app: FastAPI) -> None:
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
        except QbeError as error:
            log.error("%s: %s", type(error).__name__, error)

    await asyncio.to_thread(find_new)
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        state.metrics.update()
        try:
            if await asyncio.to_thread(state.service.index.refresh):
                log.info("a newer commit of the index: %d papers", len(state.service.index))
                await asyncio.to_thread(state.service.complete, "", 1)  # reads titles
                await asyncio.to_thread(find_new)
            state.unreadable = ""
        except QbeError as error:  # the next generation may be readable; until then the last one is served
            if str(error) != state.unreadable:
                log.error("%s: %s", type(error).__name__, error)
            state.unreadable = str(error)


def _add_handlers(app: FastAPI) -> None:
    """Make errors of all kinds responses of one form."""
    app.add_exception_handler(QbeError, lambda _, error: routes.failure_of(error))

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        return failure(422, problem_in_words(error.errors()))

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        headers, described = dict(error.headers or {}), f"{app.root_path}/openapi.json"
        match error.status_code:
            case 400:  # of the framework, such as for arrays nested too deeply
                return failure(422, "expected a body of JSON in UTF-8, found one that cannot be read")
            case 404:
                message = f"expected an address of the interface, found {request.url.path}; see {described}"
                return failure(404, message)
            case 405:
                matching = (
                    route for route in app.state.routes if route.matches(request.scope)[0] is not Match.NONE
                )
                methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
                methods |= ({"HEAD"} if "GET" in methods else set()) | {"OPTIONS"}
                headers["Allow"] = ", ".join(sorted(methods))
                if request.method == "OPTIONS":
                    return Response(status_code=204, headers=headers)
                message = f"expected one of {headers['Allow']}, found {request.method}; see {described}"
                return failure(405, message, headers)
        return failure(error.status_code, str(error.detail), headers or None)

    @app.exception_handler(Exception)
    def unexpected(_: Request, error: Exception) -> Response:
        log.error("an error that should not happen", exc_info=error)
        return failure(500, "something went wrong in the server; its log says what")
