"""A server of tools, over standard input and output or over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.metadata import version

import anyio
from fastmcp import FastMCP
from mcp.server.stdio import stdio_server
from starlette.middleware import Middleware

from qbe.mcp.guard import Guard
from qbe.mcp.messages import AnsweredErrors
from qbe.mcp.tools import TOOLS, ServiceTool
from qbe.network.access import LOCAL
from qbe.network.server import server_of
from qbe.service.service import SearchService

PATH = "/mcp"


def create_server(service: SearchService) -> FastMCP[None]:
    """The server of all tools over a service."""
    return FastMCP(
        "qbe",
        instructions(service),
        version=version("qbe"),
        tools=[ServiceTool.over(service, described) for described in TOOLS],
        mask_error_details=True,
    )


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
    """Talk over standard input and output until input ends; lines that are no messages are answered so."""

    async def run() -> None:
        inner = server._mcp_server
        async with server._lifespan_manager(), stdio_server() as (messages, answers):
            answered = AnsweredErrors(messages, answers)
            await inner.run(answered, answers, inner.create_initialization_options())

    anyio.run(run)


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
