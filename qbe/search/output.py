"""Where the text of a search goes: standard output, a file, or a file whose finished blocks are kept."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from qbe.errors import RunError
from qbe.files import atomic_file, lock, resumable_staging, write_text
from qbe.resume import Unfinished

log = logging.getLogger(__name__)

STATE = "run.json"
BLOCK = 64
"""Queries searched together, and kept together when a run is interrupted."""

Inputs = dict[str, Any]
"""All that the results of a run depend on, as JSON holds it."""


class BlockFile:
    """A text file made of blocks, which wait in a hidden folder beside its place until all are there."""

    def __init__(self, output: Path, folder: Path, inputs: Inputs) -> None:
        self._output, self._folder, self._inputs = output, folder, inputs

    def has(self, number: int) -> bool:
        """Whether a block, counted from 0, is finished."""
        return self._block(number).exists()

    def add(self, number: int, text: str) -> None:
        """Keep a block; it is on the disk when this returns."""
        if not (self._folder / STATE).exists():
            write_text(self._folder / STATE, json.dumps(self._inputs, indent=1))
        write_text(self._block(number), text)

    def is_resumable(self) -> bool:
        """Whether there are finished blocks that `resume` continues with."""
        return any(self._folder.glob("*.block"))

    def publish(self, blocks: int) -> None:
        """Put the file in its place, out of that many blocks, and remove them."""
        with atomic_file(self._output) as stream:
            for number in range(blocks):
                with self._block(number).open("rb") as block:
                    shutil.copyfileobj(block, stream)
        shutil.rmtree(self._folder)

    def _block(self, number: int) -> Path:
        return self._folder / f"{number:08d}.block"


@contextlib.contextmanager
def block_file(output: Path, inputs: Inputs, *, overwrite: bool, resume: bool) -> Iterator[BlockFile]:
    """The file at ``output``, to be written by blocks while nobody else writes it.

    What is finished stays when the writing is interrupted; the same call with ``resume``, and the same
    ``inputs``, has these blocks already. ``overwrite`` alone discards them. Raises RunError where another
    process writes the file, or unfinished blocks are in the way or are those of other inputs; OutputError for
    what cannot be written.

    >>> with block_file(Path("run.txt"), {"hits": 10}, overwrite=False, resume=False) as file:
    ...     file.add(0, "block 0, ")
    ...     file.add(1, "block 1")
    ...     file.publish(2)
    >>> Path("run.txt").read_text()
    'block 0, block 1'
    """
    output = Path(os.path.realpath(output))
    folder = _folder(output)
    with lock(output.parent / f".{output.name}.lock") as is_only_writer:
        if not is_only_writer:
            raise RunError(f"{output} is being written by another process; wait until it ends")
        _resume_or_discard(folder, inputs, overwrite=overwrite, resume=resume)
        file = BlockFile(output, folder, inputs)
        with resumable_staging(folder, file.is_resumable):
            yield file


def is_unfinished(output: Path) -> bool:
    """Whether blocks of an unfinished file wait beside its place.

    >>> is_unfinished(Path("no-such-run.trec"))
    False
    """
    return _folder(Path(os.path.realpath(output))).exists()


def _folder(output: Path) -> Path:
    return output.parent / f".{output.name}.part"


def _resume_or_discard(folder: Path, inputs: Inputs, *, overwrite: bool, resume: bool) -> None:
    """Decide about an unfinished run that is in the way."""
    if not folder.exists():
        return
    unfinished = Unfinished(folder, STATE, "run", "the index, topics and options", RunError)
    former_inputs = unfinished.read_state()
    if former_inputs is None or (overwrite and not resume):
        shutil.rmtree(folder)
        return
    if not resume:
        raise unfinished.in_the_way()
    unfinished.check_inputs(former_inputs, inputs)
    unfinished.remove_partial_files()
    log.info("continuing the unfinished run in %s", folder)


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
    blocks = [slice(first, first + BLOCK) for first in range(0, queries, BLOCK)]
    return [block for number, block in enumerate(blocks) if not output.has(number)]
