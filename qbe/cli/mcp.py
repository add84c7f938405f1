"""``qbe mcp``: tools for agents over an index."""

from __future__ import annotations

import sys

import qbe
from qbe.cli import common

HOST, PORT = "127.0.0.1", 8766
ABOUT = "Give agents tools to search an index with, by the Model Context Protocol (MCP)."
OPTIONS = f"""
--index DIR...!  the index to serve, or several as one
--transport stdio|http (stdio)  how agents reach it
--host HOST  http: address to listen at (default: {HOST}, this machine only)
--port N  http: port to listen at, 0 for any free one (default: {PORT})
--api-key-file FILE  http: a file with a key that requests must bring; needed to listen beyond this machine
{common.RERANK}{common.THREADS}"""
EPILOG = """\
With stdio an agent's program starts this command itself, and talks with it over standard input and output.
With http it listens at http://HOST:PORT/mcp (streamable HTTP). Changes of the index are noticed while it is
served. docs/serve.md shows how programs are told of it.
"""
PARSER = common.Parser("qbe mcp", ABOUT, OPTIONS, EPILOG)


def main(arguments: list[str]) -> None:
    """Answer calls until told to end."""
    options = PARSER.parse_args(arguments)

    import contextlib
    import logging
    import os
    import signal
    import threading

    from qbe.errors import check_package

    http, port = options.transport == "http", options.port
    for name in ("host", "port", "api_key_file"):
        used = getattr(options, name) is not None
        common.refuse(used and not http, f"expected `{name}` with --transport http only, found it with stdio")
    os.environ["FASTMCP_ENV_FILE"] = os.devnull  # it would read .env of the working directory
    check_package("fastmcp")

    from qbe.serve.guard import check_access, read_key

    key = read_key(options.api_key_file) if options.api_key_file else None
    host = options.host or HOST
    check_access(host, key)
    threads = common.threads(options.threads)

    from qbe.serve.mcp import PATH, create_server, serve_http, serve_stdio
    from qbe.serve.service import SearchService, stages_of
    from qbe.serve.workers import address_of, listen

    for name in ("fastmcp", "mcp", "uvicorn"):  # plain warnings: a server's output may be the protocol
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [common.log_handler()], False
        logger.setLevel(logging.WARNING)
    # To end at once is no failure, and nothing could be left half written. A KeyboardInterrupt would not do:
    # a thread that waits for standard input cannot be told to end. Over HTTP uvicorn takes both signals,
    # answers what is under way, and passes them on.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(host, PORT if port is None else port)) if http else None
        index = stack.enter_context(qbe.open_index(options.index, threads=threads))
        service = stack.enter_context(SearchService(index, stages_of(index, options.rerank)))
        server = create_server(service)
        warming = threading.Thread(target=service.warm, name="qbe-warming", daemon=True)
        stack.callback(warming.join)
        warming.start()  # a server answers at once, and its first search is fast
        if listening is None:
            serve_stdio(server)
        else:
            print(f"{len(index):,} papers for agents at {address_of(listening, PATH)}", file=sys.stderr)
            serve_http(server, listening, key)
