"""The options of ``qbe shell``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe shell"
OPTIONS = {"index": "--index"}

EPILOG = """\
Type help for the commands, and Tab to complete them and ids of papers. Ctrl-C cancels a line, Ctrl-D quits.
Commands may come out of a file as well: qbe shell --index DIR < commands.txt
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options; the path stays a string.

    >>> parser().parse_args(["--index", "indexes/sample"]).index
    'indexes/sample'
    """
    parser = _cli.parser(PROGRAM, "Search an index on a terminal, one search after the other.")
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", required=True, help="the index to search")
    _cli.add_rerank(parser)
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser
