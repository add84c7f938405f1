"""The options of ``qbe demo``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe demo"

EPILOG = """\
Indexes the 128 invented papers of the sample, searches papers like one of them by its method and by its
background, and says what to do next. Nothing is downloaded. The index is kept and used the next time.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options; the path stays a string.

    >>> parser().parse_args(["--output", "indexes/sample"]).output
    'indexes/sample'
    """
    parser = _cli.parser(PROGRAM, "Search the sample that is part of the package, and see what a facet is.")
    parser.epilog = EPILOG
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="where the sample's index is or is to be (default: demo/sample in $QBE_CACHE or ~/.cache/qbe)",
    )
    return parser
