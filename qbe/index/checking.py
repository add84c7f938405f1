"""All files of an index compared with what was written, and its papers saved where others are damaged; files
that are not an index's; the lock of its writers.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qbe.errors import IndexBuildError, IndexFormatError
from qbe.index.manifest import MANIFEST, PART, PULLED, SUPERSEDED, read_manifest
from qbe.index.openfiles import OpenFiles, digest_of
from qbe.index.papers import RECORDS
from qbe.index.snapshot import COMMIT, DELETED, ROOT, SEGMENTS, Rows, Segment, dead_rows, read_commit
from qbe.util.files import atomic_file, lock


class Checked(NamedTuple):
    """What was found of an index: how many ``segments``, and ``files`` with how many ``size`` bytes; what is
    wrong with which (``damages``, by the file's name); and the intact ``papers``: the file, of each segment
    where it is as it was written, and which of its rows are deleted.
    """

    segments: int
    files: int
    size: int
    damages: Mapping[str, str]
    papers: list[tuple[OpenFiles, Rows]]


def check_index(folder: Path) -> Checked:
    """Read all files of an index, whatever is remembered of them; of Lucene's in older ones only the sizes
    are known. Raises IndexFormatError for no index.

    >>> checked = check_index(index.folder)
    >>> checked.segments, checked.damages, len(checked.papers)
    (1, {}, 1)
    """
    damages, papers = dict[str, str](), []
    try:
        commit = read_commit(folder)
        segments = [Segment(ROOT, "")] if commit is None else list(commit.segments)
    except IndexFormatError as error:
        damages[COMMIT] = reason_of(error)  # all segments that are there may be the index's
        names = [ROOT, *(f"{SEGMENTS}/{path.name}" for path in (folder / SEGMENTS).glob("[0-9]*"))]
        segments = [Segment(name, "") for name in names if (folder / name / MANIFEST).exists()]
    count = size = 0
    for segment in segments:
        path = folder / segment.name
        try:
            manifest = read_manifest(path)
            if segment.digest not in ("", manifest.digest):
                damages[_name(segment, MANIFEST)] = "of another segment"
        except IndexFormatError as error:
            if segment.name == ROOT and not (path / MANIFEST).exists():
                raise
            damages[_name(segment, MANIFEST)] = reason_of(error)
            continue
        for name, entry in manifest.files.items():
            count, size = count + 1, size + entry["bytes"]
            if reason := _damage(path / name, entry):
                damages[_name(segment, name)] = reason
        dead = np.zeros(0, np.int64)
        try:
            dead = dead_rows(folder, segment, manifest.corpus["papers"])
        except (IndexFormatError, OSError) as error:
            assert segment.deletions is not None
            damages[segment.deletions.file] = reason_of(error)
        if _name(segment, RECORDS) not in damages and RECORDS in manifest.files:
            papers.append((OpenFiles(path, {RECORDS: manifest.files[RECORDS]}), dead))
    return Checked(len(segments), count, size, damages, papers)


def save_papers(checked: Checked, path: Path) -> int:
    """Write the intact papers of an index that are not deleted, as a corpus of JSON lines; returns how many.

    Raises OutputError where it cannot be written.

    >>> save_papers(check_index(index.folder), Path("saved.jsonl"))
    128
    """
    count = 0
    with atomic_file(path) as corpus:
        for files, dead in checked.papers:
            deleted = set(dead.tolist())
            with files.stream(RECORDS) as records:
                kept = [line for row, line in enumerate(records) if row not in deleted]
            corpus.writelines(kept)
            count += len(kept)
    return count


def _name(segment: Segment, name: str) -> str:
    return name if segment.name == ROOT else f"{segment.name}/{name}"


def _damage(path: Path, entry: Mapping[str, Any]) -> str:
    """What is wrong with a file; nothing, where it is as its entry of the manifest says."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != entry["bytes"]:
                return f"{size} bytes, not {entry['bytes']}"
            if entry.get("sha256") not in (None, digest_of(stream.fileno())):
                return "other content than was written"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def reason_of(error: Exception) -> str:
    """What was found, of a message."""
    return str(error).partition("found ")[2].partition("; ")[0] or str(error)


@contextlib.contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """No other process writes to an index, or builds one there, while the block runs; ``folder`` has no link
    in it. Raises IndexBuildError where one does, and what `qbe.util.files.lock` does.
    """
    with lock(folder.with_name(f".{folder.name}.lock")) as alone:
        if not alone:
            raise IndexBuildError(f"{folder} is being written by another process; wait until it ends")
        yield


_NAMES = {MANIFEST, PART, PULLED, SUPERSEDED, COMMIT}
_FOLDERS = {SEGMENTS, DELETED}


def check_own_files(folder: Path, others: Collection[str] = ()) -> None:
    """Raise IndexBuildError where an index or a part holds files that no manifest of it lists: replacing the
    folder would remove them; ``others`` may be there.
    """
    own = {*_NAMES, *others}
    for name in (MANIFEST, PART, SUPERSEDED):
        if (folder / name).is_file():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a damaged one lists none
                own.update(json.loads((folder / name).read_bytes())["files"])
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        partial = relative.name.startswith(f".{COMMIT}.")  # of a commit that a killed writer left
        if (path.is_dir() and not path.is_symlink()) or relative.parts[0] in _FOLDERS or partial:
            continue
        if relative.as_posix() not in own:
            raise IndexBuildError(
                f"expected only an index's own files in {folder}, found {relative}; move it away, or choose "
                "another `folder`"
            )
