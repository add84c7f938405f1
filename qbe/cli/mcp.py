"""``qbe mcp``: tools for agents over an index."""

from __future__ import annotations

import sys

from qbe.cli import common
from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

PROGRAM = "qbe mcp"
HOST, PORT = "127.0.0.1", 8766
EPILOG = """\
With stdio an agent's program starts this command itself, and talks with it over standard input and output.
With http it listens at http://HOST:PORT/mcp (streamable HTTP). Changes of the index are noticed while it is
served. docs/serve.md shows how programs are told of it.
"""


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        PROGRAM, "Give agents tools to search an index with, by the Model Context Protocol (MCP).", EPILOG
    )
    parser.options({"--index DIR...": "the index to serve, or several as one"}, required=True)
    options = {
        "--transport stdio|http (stdio)": "how agents reach it",
        "--host HOST": f"http: address to listen at (default: {HOST}, this machine only)",
        "--port N": f"http: port to listen at, 0 for any free one (default: {PORT})",
        "--api-key-file FILE": "http: a file with a key that requests must bring; needed to listen beyond "
        "this machine",
        **common.RERANK,
        **common.THREADS,
    }
    parser.options(options)
    return parser


def main(arguments: list[str]) -> None:
    """Parse the options, open the index, and answer calls until told to end."""
    options = parser().parse_args(arguments)

    import contextlib
    import os
    import threading

    from qbe.errors import UsageError, check_package

    http = options.transport == "http"
    for name in ("host", "port", "api_key_file"):
        if not http and getattr(options, name) is not None:
            raise UsageError(f"expected `{name}` with --transport http only, found it with stdio")

    os.environ["FASTMCP_ENV_FILE"] = os.devnull  # it would read .env of the working directory
    check_package("fastmcp")

    from qbe.serve.guard import check_access, read_key

    key = read_key(options.api_key_file) if options.api_key_file else None
    host = options.host or HOST
    check_access(host, key)
    threads = common.threads(options.threads)

    from qbe.index.several import open_index
    from qbe.serve.mcp import PATH, create_server, serve_http, serve_stdio
    from qbe.serve.service import SearchService, stages_of
    from qbe.serve.workers import address_of, listen

    _log_plainly()
    _end_at_signals()
    with contextlib.ExitStack() as stack:
        listening: socket.socket | None = None
        if http:
            port = PORT if options.port is None else options.port
            listening = stack.enter_context(listen(host, port))
        index = stack.enter_context(open_index(options.index, threads=threads))
        service = stack.enter_context(SearchService(index, stages_of(index, options.rerank)))
        server = create_server(service)
        warming = threading.Thread(target=service.warm, name="qbe-warming", daemon=True)
        stack.callback(warming.join)
        warming.start()  # a server answers at once, and its first search is fast
        if listening is None:
            serve_stdio(server)
        else:
            address = address_of(listening, PATH)
            print(f"{len(index):,} papers for agents at {address}", file=sys.stderr)
            serve_http(server, listening, key)


def _end_at_signals() -> None:
    """End at SIGINT or SIGTERM, at once and without an error: for a server that is no failure, and nothing
    could be left half written.

    A KeyboardInterrupt would not do: a thread that waits for standard input cannot be told to end, and Python
    drops one that is raised while a module is imported. Over HTTP uvicorn takes both signals, answers what is
    under way, and then passes them on.
    """
    import os
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))


def _log_plainly() -> None:
    """Log to standard error, warnings and worse, in plain lines; a server's output may be the protocol."""
    import logging

    import fastmcp  # noqa: F401  (it sets its own handlers when it is imported)

    handler = common.log_handler()
    for name in ("fastmcp", "mcp", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)
