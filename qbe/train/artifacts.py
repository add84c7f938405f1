"""The work folder of a training: atomic, validated intermediate files, and a note of their origin."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from qbe.errors import ModelError, UsageError
from qbe.files import atomic_file, sha256, write_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_NOTE = "made-from.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Folders:
    """``output`` is the folder that a training publishes, ``work`` the one that holds its checkpoints."""

    output: Path
    work: Path


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """How a training runs.

    There is one model for each of the ``seeds``, and their mean. ``threads`` are those of the processor;
    ``device`` is ``cpu`` or ``cuda``.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    threads: int = 1
    device: str = "cpu"


def save_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
    """Write arrays by their names to a file (``.npz``), which appears complete or not at all.

    Raises OutputError where it cannot be written.

    >>> save_arrays(Path("kept.npz"), {"weights": [0.5, 1.0]})
    >>> load_arrays(Path("kept.npz"), "the weights", "weights")["weights"].tolist()
    [0.5, 1.0]
    """
    import numpy as np

    with _replacing(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def load_arrays(path: Path, what: str, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays with these names in a file that `save_arrays` wrote; ``what`` they are is for the error.

    Raises ModelError where the file cannot be read, or lacks one of them.
    """
    import numpy as np

    with checked(path, f"{what} of this training"), np.load(path) as stored:
        return {name: stored[name] for name in names}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers and texts in nested dictionaries and lists to a file that `load_state` reads.

    The file is replaced in one step: after an interruption it is the old one or the new one. Raises
    OutputError where it cannot be written.

    >>> save_state(Path("fit.pt"), {"step": 3})
    >>> import torch
    >>> torch.load("fit.pt", weights_only=True)
    {'step': 3}
    """
    import torch

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


def check_provenance(work: Path, provenance: Mapping[str, Any]) -> None:
    """Note in a work folder what its files are made from (recipe, data), or compare with the note there.

    Raises ModelError where the folder holds files of another recipe or of other data.

    >>> check_provenance(Path(), {"data": {"train.tsv": "9f86d081"}})
    >>> check_provenance(Path(), {"data": {"train.tsv": "2c26b46b"}})
    Traceback (most recent call last):
    ...
    qbe.errors.ModelError: .: expected parts of the same recipe and data, found those of others (see
    made-from.json); give another `work`
    """
    note, text = work / _NOTE, json.dumps(provenance, indent=1) + "\n"
    if not note.exists():
        write_text(note, text)
    elif note.read_text() != text:
        raise ModelError(
            f"{work}: expected parts of the same recipe and data, found those of others (see {note.name}); "
            "give another `work`"
        )


def read_provenance(work: Path) -> Any:
    """What the files in a work folder are made from; raises ModelError where it holds no such note.

    >>> check_provenance(Path(), {"data": {"train.tsv": "9f86d081"}})
    >>> read_provenance(Path())
    {'data': {'train.tsv': '9f86d081'}}
    """
    try:
        return json.loads((work / _NOTE).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{work}: expected the work folder of a training, found no {_NOTE} in it; give the `work` of one"
        ) from error


def as_record(value: Any) -> Any:
    """Nested dataclasses as nested dictionaries for JSON.

    A field whose metadata has ``recorded_as`` goes by that name, so that a renamed field keeps its key.

    >>> as_record(RunOptions(seeds=(0,)))
    {'seeds': (0,), 'threads': 1, 'device': 'cpu'}
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return {
        field.metadata.get("recorded_as", field.name): as_record(getattr(value, field.name))
        for field in dataclasses.fields(value)
    }


def file_digests(*paths: Path) -> dict[str, str]:
    """SHA-256 of files, by the name of each and of its folder. Raises UsageError where two files that differ
    have the same.

    >>> Path("data").mkdir()
    >>> Path("data/empty.tsv").touch()
    >>> {name: digest[:8] for name, digest in file_digests(Path("data/empty.tsv")).items()}
    {'data/empty.tsv': 'e3b0c442'}
    """
    digests: dict[str, str] = {}
    for path in paths:
        key, digest = f"{path.parent.name}/{path.name}", sha256(path)
        if digests.setdefault(key, digest) != digest:
            raise UsageError(f"expected files with different folder and name, found {key} twice; rename one")
    return digests
