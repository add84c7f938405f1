"""``qbe tag``: split abstracts into sentences and label each with its facet."""

import sys
from contextlib import nullcontext
from pathlib import Path

from qbe.cli import common
from qbe.cli.common import refuse
from qbe.cli.parser import parse
from qbe.util.files import atomic_file, check_output


def main(arguments: list[str]) -> None:
    options = parse("tag", arguments)

    output = Path(options.output)
    if options.output != "-":
        is_same = output.is_file() and Path(options.input).is_file() and output.samefile(options.input)
        refuse(is_same, f"expected an `output` other than the `input`, found {output} as both")
        check_output(output, options.overwrite)

    from qbe.models.cards import DEFAULT_TAGGER
    from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk, tag_stream

    tagger = Tagger.open(options.tagger or DEFAULT_TAGGER)
    tagging = TaggingEncoder(open_trunk(tagger, options.threads), tagger, options.facets)
    opened = nullcontext(sys.stdout.buffer) if options.output == "-" else atomic_file(output)
    with common.Bar("tagging", "papers") as advance, opened as stream:
        tag_stream(options.input, stream, tagging, advance, probabilities=options.probabilities)
