"""``qbe tag``: split abstracts into sentences and label each with its facet."""

from __future__ import annotations

import sys

from qbe.cli import common

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    T = TypeVar("T")

ABOUT = """\
Split abstracts into sentences and label each: background, objective, method, result or other. Papers are \
written back with abstract as a list and pred_labels, one for each sentence."""
OPTIONS = f"""
--input FILE!  JSON lines with paper_id, title, abstract (a string, or a list of sentences, which is kept as
  it is); .gz, .xz, .zst are read too; - is standard input
--output FILE!  JSON lines; - is standard output
{common.OVERWRITE}\
--facets given|predicted (given)  given: keep the labels of papers that have them; predicted: label all
--probabilities  add pred_probabilities, five numbers for each sentence
--tagger NAME  name in the registry, or a folder (default: facet-tagger)
{common.THREADS}"""
PARSER = common.Parser("qbe tag", ABOUT, OPTIONS)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)
    threads = common.threads(options.threads)

    from contextlib import nullcontext
    from pathlib import Path

    from qbe.errors import UsageError
    from qbe.util.files import check_output

    output = Path(options.output)
    if options.output != "-":
        if output.is_file() and Path(options.input).is_file() and output.samefile(options.input):
            raise UsageError(f"expected an `output` other than the `input`, found {output} as both")
        check_output(output, options.overwrite)

    from qbe.models.cards import DEFAULT_TAGGER
    from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk, tag_stream
    from qbe.util.files import atomic_file

    def counted(records: Iterable[T]) -> Iterator[T]:
        with common.Bar("tagging", "papers") as advance:
            for record in records:
                yield record
                advance(1)

    tagger = Tagger.open(options.tagger or DEFAULT_TAGGER)
    tagging = TaggingEncoder(open_trunk(tagger, threads), tagger, options.facets)
    with nullcontext(sys.stdout.buffer) if options.output == "-" else atomic_file(output) as stream:
        tag_stream(options.input, stream, tagging, counted, probabilities=options.probabilities)
