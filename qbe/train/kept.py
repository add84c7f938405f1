"""What a training keeps in its work folder: written in one step, flushed to the disk, checked when read."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from qbe.errors import ModelError
from qbe.files import atomic_file


def save_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
    """Write arrays by their names to a file (``.npz``), which appears complete or not at all.

    Raises OutputError where it cannot be written.

    >>> save_arrays(Path("kept.npz"), {"weights": [0.5, 1.0]})
    >>> load_arrays(Path("kept.npz"), "the weights", "weights")["weights"].tolist()
    [0.5, 1.0]
    """
    with _replacing(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def load_arrays(path: Path, what: str, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays with these names in a file that `save_arrays` wrote; ``what`` they are is for the error.

    Raises ModelError where the file cannot be read, or lacks one of them.
    """
    with checked(path, f"{what} of this training"), np.load(path) as stored:
        return {name: stored[name] for name in names}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers and texts in nested dictionaries and lists to a file that `load_state` reads.

    The file is replaced in one step: after an interruption it is the old one or the new one. Raises
    OutputError where it cannot be written.

    >>> save_state(Path("fit.pt"), {"step": 3})
    >>> torch.load("fit.pt", weights_only=True)
    {'step': 3}
    """
    with _replacing(path) as stream:
        torch.save(dict(state), stream)


@contextlib.contextmanager
def checked(path: Path, what: str, advice: str = "delete it") -> Iterator[None]:
    """Around the reading of a file: whatever is wrong with it becomes a ModelError of one line.

    ``what`` the file should hold and an ``advice`` complete the message.

    >>> with checked(Path("seed-0.npz"), "the projections of this training"):
    ...     raise ValueError("no archive")
    Traceback (most recent call last):
    ...
    qbe.errors.ModelError: seed-0.npz: expected the projections of this training, found: no archive; delete it
    """
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]  # an empty file's error is empty
        raise ModelError(f"{path}: expected {what}, found: {reason}; {advice}") from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """`qbe.files.atomic_file`; what a killed call left unfinished of the same file is removed first.

    A work folder serves one training at a time, so that nobody else is writing it.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        leftover.unlink(missing_ok=True)
    with atomic_file(path) as stream:
        yield stream
