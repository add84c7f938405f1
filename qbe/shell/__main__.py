"""``qbe shell``: one search after the other on a terminal."""

from __future__ import annotations

import io
import sys

from qbe import _cli
from qbe.shell.options import OPTIONS, PROGRAM, parser

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Parse the options, open the index, and read commands until they end."""
    options = parser().parse_args(arguments)
    threads = _cli.threads(options.threads)

    from qbe.index.opening import open_index
    from qbe.service.service import SearchService
    from qbe.shell.shell import PATIENT, Shell

    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that a terminal lacks is no reason to end
    with (
        open_index(options.index, threads=threads) as index,
        SearchService(index, PATIENT, options.rerank) as service,
    ):
        Shell(service, sys.stdin, sys.stdout, sys.stderr).run()


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
