"""The options of ``qbe tag``."""

from __future__ import annotations

import argparse

from qbe import _cli

PROGRAM = "qbe tag"
LABEL_SOURCES = ("given", "predicted")


def parser() -> argparse.ArgumentParser:
    """The command's options.

    >>> parser().parse_args(["--input", "papers.jsonl", "--output", "-"]).facets
    'given'
    """
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
    parser.add_argument("--resume", action="store_true", help="continue an interrupted call")
    return parser
