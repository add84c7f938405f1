"""``qbe tag``: split abstracts into sentences and label each with its facet."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from typing import Any

PROGRAM = "qbe tag"
OPTIONS: dict[str, str] = {}
LABEL_SOURCES = ("given", "predicted")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(
        PROGRAM,
        "Split abstracts into sentences and label each: background, objective, method, result or other. "
        "Papers are written back with abstract as a list and pred_labels, one for each sentence.",
    )
    parser.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="JSON lines with paper_id, title, abstract (a string, or a list of sentences, which is kept as "
        "it is); .gz, .xz, .zst are read too; - is standard input",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="JSON lines; - is standard output")
    parser.add_argument(
        "--facets",
        choices=LABEL_SOURCES,
        default="given",
        help="given: keep the labels of papers that have them; predicted: label all (default: %(default)s)",
    )
    parser.add_argument(
        "--probabilities", action="store_true", help="add pred_probabilities, five numbers for each sentence"
    )
    parser.add_argument("--tagger", help="name in the registry, or a folder (default: facet-tagger)")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    from qbe.errors import UsageError

    threads = _cli.threads(options.threads)
    from contextlib import nullcontext
    from pathlib import Path

    from qbe.util.outputs import EMPTY, check_output

    output = Path(options.output)
    if options.output != "-":
        if output.is_file() and Path(options.input).is_file() and output.samefile(options.input):
            raise UsageError(f"expected an `output` other than the `input`, found {output} as both")
        check_output(output, EMPTY)  # a result is a corpus, as others have

    from qbe.models.cards import DEFAULT_TAGGER
    from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk, tag_stream
    from qbe.util.files import atomic_file

    tagger = Tagger.open(options.tagger or DEFAULT_TAGGER)
    tagging = TaggingEncoder(open_trunk(tagger, threads), tagger, options.facets)
    with nullcontext(sys.stdout.buffer) if options.output == "-" else atomic_file(output) as stream:
        tag_stream(options.input, stream, tagging, _progress, probabilities=options.probabilities)


def _progress(records: Iterable[Any]) -> Iterator[Any]:
    return _cli.progress(records, "tagging", "papers")


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
