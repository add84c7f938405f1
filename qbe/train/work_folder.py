"""Where a training writes, how it runs, and the note in its work folder of what its parts were made from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, UsageError
from qbe.files import sha256, write_text

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
