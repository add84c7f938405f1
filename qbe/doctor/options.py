"""The options of ``qbe doctor``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe doctor"

EPILOG = """\
Each line is OK, advice (searching works, something is slower or absent) or MISSING (searching needs it).
Nothing is loaded, started, written or sent. The exit code is 0 if searching can work, and 1 if not. With
--index only that index is looked at: each of its files is read, and a line names each that is DAMAGED; the
exit code is 1 if one is.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options.

    >>> parser().parse_args(["--json"]).json
    True
    """
    parser = _cli.parser(PROGRAM, "Show what this machine and this installation are, and what they lack.")
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", help="compare all files of this index with their digests")
    parser.add_argument(
        "--save",
        metavar="FILE",
        help="write the index's intact papers, without deleted ones, to a corpus",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    return parser
