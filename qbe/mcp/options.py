"""The options of ``qbe mcp``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

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
    """Return the parser of the command's options; paths stay strings.

    >>> parser().parse_args(["--index", "indexes/sample"]).transport
    'stdio'
    """
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
