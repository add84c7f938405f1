"""A server of tools, over standard input and output or over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import anyio
from fastmcp import FastMCP
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError
from starlette.middleware import Middleware

from qbe.serve.mcp.tools import tools_of
from qbe.serve.network.guard import LOCAL, Guard
from qbe.serve.network.server import server_of
from qbe.serve.service.service import SearchService

PATH = "/mcp"


def create_server(service: SearchService) -> FastMCP[None]:
    """The server of all tools over a service."""
    tools = tools_of(service)
    return FastMCP("qbe", instructions(service), version=version("qbe"), tools=tools, mask_error_details=True)


def instructions(service: SearchService) -> str:
    """What an agent reads of the server first."""
    with service.index.reading() as reader:
        count = len(reader)
        first = next(iter(reader)).paper_id if count else None
    ids = f" Ids of its papers look like {first}." if first is not None else ""
    return (
        f"Search in an index of {count:,} scientific papers, by example: papers like a paper or an abstract, "
        "for its problem (background), its method or its findings (result)."
        f"{ids} Begin with search_papers; get_paper reads a hit, compare_papers explains it, "
        "recommend_citations finds what a draft should cite, export_citations gives BibTeX and other "
        "formats. Nothing is changed, and nothing outside of this index is searched."
    )


def serve_stdio(server: FastMCP[None]) -> None:
    """Talk over standard input and output until input ends; lines that are no messages get an error."""

    async def run() -> None:
        inner = server._mcp_server
        async with (
            server._lifespan_manager(),
            stdio_server() as (messages, answers),
            anyio.create_task_group() as tasks,
        ):
            sending, receiving = anyio.create_memory_object_stream[Any]()
            tasks.start_soon(_pass_on, messages, answers, sending)
            await inner.run(receiving, answers, inner.create_initialization_options())

    anyio.run(run)


async def _pass_on(messages: Any, answers: Any, valid: Any) -> None:
    """Pass on messages; a line that is none is answered with an error, where the library would skip it."""
    async with valid:
        async for item in messages:
            if isinstance(item, Exception):
                await answers.send(SessionMessage(refusal(item)))
            else:
                await valid.send(item)


def refusal(error: Exception) -> JSONRPCError:
    """The answer to a line that could not be read, whose number is not known (JSON-RPC 2.0, section 5.1).

    >>> refusal(ValueError("no message")).error.code
    -32600
    """
    is_json = not isinstance(error, ValidationError) or error.errors()[0]["type"] != "json_invalid"
    code, expected = (INVALID_REQUEST, "a message of JSON-RPC 2.0") if is_json else (PARSE_ERROR, "JSON")
    message = f"expected {expected} in one line, found what cannot be read as such"
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=message))


def serve_http(
    server: FastMCP[None], listening: socket.socket, key: str | None, started: Callable[[], None]
) -> None:
    """Answer requests until SIGINT or SIGTERM; ``key`` is what they must bring, None: nothing. ``started`` is
    called once requests are answered.

    A server for this machine alone answers only under the names of this machine, so that no page of another
    site can reach it by a name that is made to lead here.
    """
    host = listening.getsockname()[0]
    app = server.http_app(
        PATH,
        [Middleware(Guard, key=key)],
        json_response=True,
        stateless_http=True,
        host_origin_protection="auto",
        allowed_hosts=[host] if host in LOCAL else None,
    )
    server_of(app, started).run(sockets=[listening])
