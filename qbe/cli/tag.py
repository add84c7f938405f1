"""``qbe tag``: split abstracts into sentences and label each with its facet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from qbe.cli import common
from qbe.cli.parser import parse
from qbe.errors import UsageError
from qbe.models.cards import DEFAULT_TAGGER
from qbe.util.files import atomic_file, check_output
from qbe.util.work import thread_count

T = TypeVar("T")


def main(arguments: list[str]) -> None:
    options = parse("tag", arguments)
    threads = thread_count(options.threads)

    output = Path(options.output)
    if options.output != "-":
        if output.is_file() and Path(options.input).is_file() and output.samefile(options.input):
            raise UsageError(f"expected an `output` other than the `input`, found {output} as both")
        check_output(output, options.overwrite)

    from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk, tag_stream

    def counted(records: Iterable[T]) -> Iterator[T]:
        with common.Bar("tagging", "papers") as advance:
            for record in records:
                yield record
                advance(1)

    tagger = Tagger.open(options.tagger or DEFAULT_TAGGER)
    tagging = TaggingEncoder(open_trunk(tagger, threads), tagger, options.facets)
    with nullcontext(sys.stdout.buffer) if options.output == "-" else atomic_file(output) as stream:
        tag_stream(options.input, stream, tagging, counted, probabilities=options.probabilities)
