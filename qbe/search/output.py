"""Where the text of a search goes: standard output, a file, or a file whose finished blocks are kept."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from qbe.files import write_text
from qbe.search.unfinished import Inputs, block_file


class Output(Protocol):
    """Takes the text of a search block by block, numbered from 0."""

    def has(self, number: int) -> bool:
        """Whether a block is there already."""

    def add(self, number: int, text: str) -> None:
        """Take a block."""

    def publish(self, blocks: int) -> None:
        """All blocks are there."""


class Printed:
    """Standard output; blocks are written as they come."""

    def has(self, number: int) -> bool:  # noqa: ARG002
        """Nothing is kept."""
        return False

    def add(self, number: int, text: str) -> None:  # noqa: ARG002
        """Write a block."""
        sys.stdout.write(text)

    def publish(self, blocks: int) -> None:
        """Nothing is left to do."""


class BufferedOutput:
    """A file that is written in the end: one query's, or one that is no regular file, such as a pipe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: list[str] = []

    def has(self, number: int) -> bool:
        """Whether a block was added."""
        return number < len(self._texts)

    def add(self, number: int, text: str) -> None:  # noqa: ARG002
        """Keep a block in memory."""
        self._texts.append(text)

    def publish(self, blocks: int) -> None:  # noqa: ARG002
        """Write the file, whole or not at all."""
        write_text(self._path, "".join(self._texts))


@contextlib.contextmanager
def open_output(options: argparse.Namespace, describe: Callable[[], Inputs]) -> Iterator[Output]:
    """The output that the options of ``python -m qbe.search`` ask for; errors are those of `block_file`.

    ``describe`` tells all that shapes the run, where finished blocks are kept.
    """
    path: Path | None = options.output
    if path is None:
        yield Printed()
    elif not options.topics or (path.exists() and not path.is_file()):
        yield BufferedOutput(path)
    else:
        with block_file(path, describe(), overwrite=options.overwrite, resume=options.resume) as file:
            try:
                yield file
            except KeyboardInterrupt:
                if file.kept():
                    sys.stderr.write("interrupted; --resume goes on with what is finished\n")
                raise
