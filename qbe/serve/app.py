"""The application: routes over a service, behind a guard, following the index."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from qbe.errors import QbeError
from qbe.serve import routes
from qbe.serve.failures import add_handlers
from qbe.serve.guard import Guard
from qbe.serve.metrics import Metrics
from qbe.serve.page import page_files
from qbe.serve.settings import ServeSettings
from qbe.service.service import SearchService

log = logging.getLogger("qbe.serve")

REFRESH_SECONDS = 2.0
"""How often a newer commit of the index is looked for."""


def create_app(service: SearchService, settings: ServeSettings = ServeSettings()) -> ASGIApp:  # noqa: B008
    """An ASGI application over a service, which it warms when it starts and leaves open when it ends."""
    metrics = Metrics(service)
    app = FastAPI(
        title="qbe",
        version=version("qbe"),
        description="Find papers like this one, for its problem, its method or its findings.",
        docs_url=None,  # pages that load scripts from elsewhere
        redoc_url=None,
        lifespan=_lifespan,
        root_path=settings.root_path,
    )
    app.state.service, app.state.metrics, app.state.ready = service, metrics, threading.Event()
    app.state.unreadable = ""  # why the newest commit cannot be read
    app.include_router(routes.api)
    app.include_router(routes.operations)
    add_handlers(app)
    files = page_files()
    for path, (content, media_type) in files.items():
        app.add_api_route(path, _file(content, media_type), include_in_schema=False)
    app.state.routes = [*routes.api.routes, *routes.operations.routes, *app.routes]
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
        )
    return Guard(app, settings, metrics, frozenset(files))


def _file(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return answer


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Warm the service, and follow the index, until the application ends."""
    tasks = [asyncio.create_task(_warm(app)), asyncio.create_task(_follow(app))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _warm(app: FastAPI) -> None:
    try:
        await asyncio.to_thread(app.state.service.warm)
    except QbeError as error:
        log.error("%s: %s", type(error).__name__, error)
    app.state.ready.set()


async def _follow(app: FastAPI) -> None:
    service = app.state.service
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        try:
            if await asyncio.to_thread(service.refresh):
                log.info("a newer commit of the index: %d papers", len(service.index))
            app.state.unreadable = ""
        except QbeError as error:  # perhaps mended by the next commit; until then the last one is served
            if str(error) != app.state.unreadable:  # said once
                log.error("%s: %s", type(error).__name__, error)
            app.state.unreadable = str(error)
