"""``qbe shell``: one search after the other on a terminal."""

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
    """The command's options."""
    parser = _cli.parser(PROGRAM, "Search an index on a terminal, one search after the other.")
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", required=True, help="the index to search")
    _cli.add_rerank(parser)
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(arguments: list[str]) -> None:
    """Parse the options, open the index, and read commands until they end."""
    options = parser().parse_args(arguments)
    threads = _cli.threads(options.threads)
    import io
    import sys

    from qbe.index.opening import open_index
    from qbe.service.service import SearchService, stages_of
    from qbe.shell.shell import PATIENT, Shell

    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that a terminal lacks is no reason to end
    with (
        open_index(options.index, threads=threads) as index,
        SearchService(index, stages_of(index, options.rerank), PATIENT) as service,
    ):
        Shell(service, sys.stdin, sys.stdout, sys.stderr).run()


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
