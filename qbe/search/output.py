"""Where the text of a search goes: standard output, a file, or a file whose finished blocks are kept."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from qbe.files import write_text
from qbe.search import fingerprint
from qbe.search.unfinished import Inputs, block_file


class Destination(NamedTuple):
    """Where text goes: a ``path``, None for standard output; ``in_blocks`` where finished blocks are kept
    beside it, which ``resume`` and ``overwrite`` are about.
    """

    path: Path | None
    in_blocks: bool = False
    resume: bool = False
    overwrite: bool = False


class Output(Protocol):
    """Takes the text of a search block by block, numbered from 0."""

    def has(self, number: int) -> bool:
        """Whether a block is there already."""

    def add(self, number: int, text: str) -> None:
        """Take a block."""

    def publish(self, blocks: int) -> None:
        """All blocks are there."""


class PrintedOutput:
    """Standard output; blocks are written as they come.

    >>> PrintedOutput().add(0, "a block of text")
    a block of text
    """

    def has(self, number: int) -> bool:  # noqa: ARG002
        """Nothing is kept."""
        return False

    def add(self, number: int, text: str) -> None:  # noqa: ARG002
        """Write a block."""
        sys.stdout.write(text)

    def publish(self, blocks: int) -> None:
        """Nothing is left to do."""


class BufferedOutput:
    """A file that is written in the end: one query's, or one that is no regular file, such as a pipe.

    >>> output = BufferedOutput(Path("buffered.txt"))
    >>> for number, text in enumerate(["block 0, ", "block 1"]):
    ...     output.add(number, text)
    >>> output.publish(2)
    >>> Path("buffered.txt").read_text()
    'block 0, block 1'
    """

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
def open_output(destination: Destination, describe: Callable[[], Inputs]) -> Iterator[Output]:
    """The output at a destination; errors are those of `block_file`.

    ``describe`` gives all that the run's results depend on, where finished blocks are kept. A
    KeyboardInterrupt says there how to continue.

    >>> with open_output(Destination(None), dict) as output:
    ...     output.add(0, "printed")
    printed
    """
    path = destination.path
    if path is None:
        yield PrintedOutput()
    elif not destination.in_blocks or (path.exists() and not path.is_file()):
        yield BufferedOutput(path)
    else:
        inputs = describe()
        with block_file(path, inputs, overwrite=destination.overwrite, resume=destination.resume) as file:
            try:
                yield file
            except KeyboardInterrupt:
                hint = ("; --resume continues with what is finished",) if file.is_resumable() else ()
                raise KeyboardInterrupt(*hint) from None


def missing_blocks(output: Output, queries: int) -> list[slice]:
    """The blocks of so many queries that an output does not have yet.

    >>> missing_blocks(PrintedOutput(), 1)
    [slice(0, 64, None)]
    """
    size = fingerprint.BLOCK
    blocks = [slice(first, first + size) for first in range(0, queries, size)]
    return [block for number, block in enumerate(blocks) if not output.has(number)]
