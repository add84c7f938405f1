"""Errors as answers: a status, and one line that a person and a program can act on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from qbe.errors import CorpusError, FacetNotFoundError, PaperNotFoundError, QbeError, UsageError
from qbe.plain import one_line
from qbe.service.lanes import OverloadedError
from qbe.service.requests import problem_in_words
from qbe.service.service import TooSlowError

log = logging.getLogger("qbe.serve")

LONGEST = 500
"""Characters of a message."""

STATUSES: tuple[tuple[type[QbeError], int], ...] = (
    (PaperNotFoundError, 404),
    (OverloadedError, 429),
    (TooSlowError, 503),
    (UsageError, 422),
    (FacetNotFoundError, 422),
    (CorpusError, 422),
)


def failure(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    r"""An answer that says what is wrong.

    >>> failure(404, "no such\npaper").body
    b'{"error":{"message":"no such paper"}}'
    """
    return JSONResponse({"error": {"message": one_line(message)[:LONGEST]}}, status, headers)


def failure_of(error: QbeError) -> JSONResponse:
    """The answer for an error of the library; what is not the client's fault is logged.

    >>> failure_of(OverloadedError(2)).headers["retry-after"]
    '2'
    """
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    if status == 500:
        log.error("%s: %s", type(error).__name__, error)
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, OverloadedError) else None
    return failure(status, str(error), headers)


def _methods(request: Request) -> set[str]:
    """What the address of a request can be asked by."""
    known: Sequence[BaseRoute] = request.app.state.routes
    routes = [route for route in known if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return methods | ({"HEAD"} if "GET" in methods else set()) | {"OPTIONS"}


def add_handlers(app: FastAPI) -> None:
    """Make errors of all kinds answers of this form."""

    @app.exception_handler(QbeError)
    def library(_: Request, error: QbeError) -> JSONResponse:
        return failure_of(error)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return failure(422, problem_in_words(error.errors()))

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        headers, described = dict(error.headers or {}), f"{app.root_path}/openapi.json"
        match error.status_code:
            case 404:
                message = f"expected an address of the interface, found {request.url.path}; see {described}"
                return failure(404, message)
            case 405:
                headers["Allow"] = ", ".join(sorted(_methods(request)))
                if request.method == "OPTIONS":
                    return Response(status_code=204, headers=headers)
                message = f"expected one of {headers['Allow']}, found {request.method}; see {described}"
                return failure(405, message, headers)
        return failure(error.status_code, str(error.detail), headers or None)

    @app.exception_handler(Exception)
    def unexpected(_: Request, error: Exception) -> JSONResponse:
        log.error("an error that should not happen", exc_info=error)
        return failure(500, "something went wrong in the server; its log says what")
