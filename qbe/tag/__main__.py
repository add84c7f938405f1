"""``python -m qbe.tag``: split abstracts into sentences and label each with its facet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from qbe import _cli
from qbe.errors import UsageError


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.tag",
        description="Split abstracts into sentences and label each: background, objective, method, result or "
        "other. Papers are written back with abstract as a list and pred_labels, one a sentence.",
    )
    parser.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="JSON lines with paper_id, title, abstract (a string, or a list of sentences, then kept as "
        "split); .gz, .xz, .zst are read too; - is standard input",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="JSON lines; - is standard output")
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        default="given",
        help="given: keep the labels of papers that bring them; predicted: label all (default: %(default)s)",
    )
    parser.add_argument(
        "--probabilities", action="store_true", help="add pred_probabilities, five numbers a sentence"
    )
    parser.add_argument("--tagger", help="name in the registry, or a folder (default: facet-tagger)")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted call")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    if options.resume and options.output == "-":
        raise UsageError("--resume needs a file as --output, found -; give one")
    from qbe.models.registry import DEFAULT_TAGGER
    from qbe.tag.records import tag_file, tag_stream
    from qbe.tag.tagger import Tagger
    from qbe.tag.tagging import TaggingEncoder, open_trunk

    tagger = Tagger.open(options.tagger or DEFAULT_TAGGER)
    tagging = TaggingEncoder(open_trunk(tagger, threads), tagger, options.facets)
    if options.output == "-":
        tag_stream(options.input, sys.stdout.buffer, tagging, _watch, probabilities=options.probabilities)
        return
    try:
        tag_file(
            options.input,
            Path(options.output),
            tagging,
            _watch,
            probabilities=options.probabilities,
            resume=options.resume,
        )
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with what is finished", file=sys.stderr)
        raise


def _watch(records: Iterable[Any]) -> Iterator[Any]:
    return _cli.progress(records, "tagging", "papers")


if __name__ == "__main__":
    _cli.run("qbe.tag", main)
