"""``qbe mcp``: tools for agents over an index."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import socket

PROGRAM = "qbe mcp"
OPTIONS = {"index": "--index", "port": "--port", "host": "--host", "key_file": "--api-key-file"}
STDIO, HTTP = "stdio", "http"
HOST, PORT = "127.0.0.1", 8766

EPILOG = """\
With stdio an agent's program starts this command itself, and talks with it over standard input and output.
With http it listens at http://HOST:PORT/mcp (streamable HTTP). Changes of the index are noticed while it is
served. docs/serve.md shows how programs are told of it.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(
        PROGRAM, "Give agents tools to search an index with, by the Model Context Protocol (MCP)."
    )
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", required=True, help="the index to serve")
    parser.add_argument(
        "--transport", choices=(STDIO, HTTP), default=STDIO, help=f"how agents reach it (default: {STDIO})"
    )
    parser.add_argument("--host", help=f"http: address to listen at (default: {HOST}, this machine only)")
    parser.add_argument(
        "--port", type=int, help=f"http: port to listen at, 0 for any free one (default: {PORT})"
    )
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="http: a file with a key that requests must bring; needed to listen beyond this machine",
    )
    _cli.add_rerank(parser)
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(arguments: list[str]) -> None:
    """Parse the options, open the index, and answer calls until told to end."""
    options = parser().parse_args(arguments)
    _check(options)
    import contextlib
    import os
    import threading

    from qbe.errors import check_package

    os.environ["FASTMCP_ENV_FILE"] = os.devnull  # it would read .env of the working directory
    check_package("fastmcp")

    from qbe.serve.guard import check_access, read_key

    key = read_key(options.api_key_file) if options.api_key_file else None
    host = options.host or HOST
    check_access(host, key)
    threads = _cli.threads(options.threads)

    from qbe.index.opening import open_index
    from qbe.serve.mcp import PATH, create_server, serve_http, serve_stdio
    from qbe.serve.service import SearchService, stages_of
    from qbe.serve.workers import address_of, listen

    _log_plainly()
    _end_at_signals()
    with contextlib.ExitStack() as stack:
        listening: socket.socket | None = None
        if options.transport == HTTP:
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


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    from qbe.errors import UsageError

    if options.transport != HTTP:
        for name in ("host", "port", "api_key_file"):
            if getattr(options, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"expected {option} with --transport http only, found it with stdio")


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

    handler = _cli.log_handler()
    for name in ("fastmcp", "mcp", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
