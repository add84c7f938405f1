"""A server of tools, over standard input and output or over HTTP."""

from __future__ import annotations

import socket
from importlib.metadata import version

import anyio
from fastmcp import FastMCP
from starlette.middleware import Middleware

from qbe.mcp.guard import Guard
from qbe.mcp.tools import TOOLS, ServiceTool
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
    """Talk over standard input and output until input ends."""
    server.run("stdio", show_banner=False)


def serve_http(server: FastMCP[None], listening: socket.socket, key: str | None) -> None:
    """Answer requests until SIGINT or SIGTERM; ``key`` is what they must bring, None: nothing.

    A server for this machine alone answers only under the names of this machine, so that no page of another
    site can reach it by a name that is made to lead here.
    """
    host, port = listening.getsockname()[:2]

    async def run() -> None:
        await server.run_http_async(
            show_banner=False,
            transport="http",
            host=host,
            port=port,
            path=PATH,
            middleware=[Middleware(Guard, key=key)],
            stateless_http=True,
            json_response=True,
            host_origin_protection="auto",
            sockets=[listening],
            uvicorn_config={"log_config": None, "access_log": False, "server_header": False},
        )

    anyio.run(run)
