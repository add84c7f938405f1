"""The options of ``qbe serve``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe serve"
OPTIONS = {"folder": "--index", "port": "--port", "host": "--host", "key_file": "--api-key-file"}
HOST, PORT = "127.0.0.1", 8765

EPILOG = """\
The page is at the address that is printed; programs find a description of the interface under /openapi.json.
Changes of the index are noticed while it is served. Ctrl-C, or SIGTERM, ends it once requests under way are
answered. docs/serve.md says how to serve others than oneself.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options; paths stay strings.

    >>> parser().parse_args(["--index", "indexes/sample"]).port
    8765
    """
    parser = _cli.parser(
        PROGRAM, "Serve an index: a page to search with, and the same for programs over HTTP."
    )
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", required=True, help="the index to serve")
    parser.add_argument(
        "--host", default=HOST, help=f"address to listen at (default: {HOST}, this machine only)"
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"port to listen at, 0 for any free one (default: {PORT})"
    )
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="a file with a key that requests must bring; needed to listen beyond this machine",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        nargs="+",
        default=[],
        help="names under which a server in front of this one is reached",
    )
    parser.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        nargs="+",
        default=[],
        help="origins of other pages, such as https://example.org, that may ask (default: none)",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        default="",
        help="what a server in front of this one puts before all paths, such as /qbe",
    )
    parser.add_argument(
        "--log-queries", action="store_true", help="log what is searched for, pasted texts too"
    )
    _cli.add_rerank(parser)
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser
