"""The work folder of a training: atomic, validated intermediate files, and a note of their origin."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from qbe.errors import ModelError, UsageError
from qbe.models.cards import check_model_folder
from qbe.util.files import atomic_file, sha256, write_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_NOTE = "made-from.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Folders:
    """``output`` is the folder that a training publishes, ``work`` the one that holds its checkpoints.

    Raises UsageError where ``work`` is ``output`` or lies in it: that folder is replaced as a whole.

    >>> Folders(Path("model"), Path("model/work"))
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected a `work` folder outside of `output`, found model/work in model; ...
    """

    output: Path
    work: Path

    def __post_init__(self) -> None:
        if self.work.resolve().is_relative_to(self.output.resolve()):
            raise UsageError(
                f"expected a `work` folder outside of `output`, found {self.work} in {self.output}; "
                "give another"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """How a training runs.

    There is one model for each of the ``seeds``, and their mean. ``threads`` are those of the processor;
    ``device`` is ``cpu`` or ``cuda``.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    threads: int = 1
    device: str = "cpu"


_NONE = Path()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a training reads; which of these, its function says.

    ``train`` are files (or a folder of files) to learn from, ``dev`` those to choose and measure on; of
    graded pairs the first file of dev chooses. ``corpus`` holds papers as JSON lines, ``index`` is an index
    of them. Papers with a title like that of one in ``leave_out``, which models are evaluated on, are not
    learned from.
    """

    train: tuple[Path, ...] = ()
    dev: tuple[Path, ...] = ()
    corpus: Path = _NONE
    index: Path = _NONE
    leave_out: Path = _NONE

    def digests(self) -> dict[str, str]:
        """SHA-256 of all files but the index (see `file_digests`)."""
        given = (*self.train, *self.dev, self.corpus, self.leave_out)
        files = (sorted(path.glob("*.jsonl")) if path.is_dir() else [path] for path in given if path != _NONE)
        return file_digests(*itertools.chain.from_iterable(files))


def begin(
    sources: Sources, folders: Folders | Path, run: RunOptions, recipe: Any, **models: Any
) -> dict[str, Any]:
    """Begin a training in its work folder (all that one has whose weights stay there), or continue there;
    returns what it is made from.

    That is the recipe, the ``models`` that it uses, and the data. PyTorch's threads are set. Raises
    ModelError where the work folder holds parts of another recipe or of other data, OutputError for an output
    that holds other files than a model's.

    >>> recipe = RunOptions(seeds=(0,))  # any dataclass
    >>> begin(Sources(), Folders(Path("model"), Path("work")), RunOptions(), recipe, start="a")
    {'recipe': {'seeds': (0,), 'threads': 1, 'device': 'cpu'}, 'start': 'a', 'data': {}}
    """
    import torch

    if isinstance(folders, Folders):
        check_model_folder(folders.output)
        folders = folders.work
    torch.set_num_threads(run.threads)
    provenance = {"recipe": dataclasses.asdict(recipe), **models, "data": sources.digests()}
    check_provenance(folders, provenance)
    return provenance


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
    """`qbe.util.files.atomic_file`; what a killed call left unfinished of the same file is removed first.

    A work folder serves one training at a time, so that nobody else is writing it.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        leftover.unlink(missing_ok=True)
    with atomic_file(path) as stream:
        yield stream


def check_provenance(work: Path, provenance: Mapping[str, Any]) -> None:
    """Note in a work folder what its files are made from, or compare with the note there (see `begin`), which
    is replaced where it is all that the folder holds: that training failed before it made anything.
    """
    note, text = work / _NOTE, json.dumps(provenance, indent=1) + "\n"
    if not note.exists() or list(work.iterdir()) == [note]:
        write_text(note, text)
    elif note.read_text() != text:
        raise ModelError(
            f"{work}: expected parts of the same recipe and data, found those of others (see {note.name}); "
            "give another `work`"
        )


def read_provenance(work: Path) -> Any:
    """What the files in a work folder are made from; raises ModelError where it holds no such note."""
    try:
        return json.loads((work / _NOTE).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{work}: expected the work folder of a training, found no {_NOTE} in it; give the `work` of one"
        ) from error


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
