"""Removing files that a commit does not name: those of killed writers, and segments that no reader locks."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path, PurePosixPath

from qbe.files import try_exclusive_lock
from qbe.index.building.unfinished import STATE
from qbe.index.manifest import MANIFEST, SUPERSEDED
from qbe.index.sealed import unseal
from qbe.index.segments.commit import COMMIT, DELETED, ROOT, SEGMENTS, read_commit


def clean(folder: Path) -> None:
    """Remove from an index all files that its commit does not name and no reader locks; only the writer may.

    Files that cannot be removed stay for the next writer. Raises IndexFormatError where the commit
    is damaged.
    """
    commit = read_commit(folder)
    segments = {ROOT} if commit is None else {segment.name for segment in commit.segments}
    files = [] if commit is None else [each.deletions.file for each in commit.segments if each.deletions]
    with contextlib.suppress(OSError):
        for path in folder.glob(f".{COMMIT}.*.partial"):
            path.unlink()
        for path in (folder / DELETED).glob("*"):
            if f"{DELETED}/{path.name}" not in files:
                path.unlink()
        for path in (folder / SEGMENTS).glob("*"):
            if not path.is_dir():  # a list of skipped records, which a killed writer left
                path.unlink()
            elif f"{SEGMENTS}/{path.name}" not in segments:
                _remove(path)
        if ROOT not in segments:
            _remove_root(folder)
    for name in (DELETED, SEGMENTS):
        with contextlib.suppress(OSError):  # not empty, or not there
            (folder / name).rmdir()


def _remove(path: Path) -> None:
    """Remove a segment's folder, unless a reader locks it; its manifest goes first, so that none can."""
    manifest = path / MANIFEST
    if manifest.exists():  # not in the folder of an unfinished one
        with try_exclusive_lock(manifest) as alone:
            if not alone:
                return
            manifest.unlink()
    shutil.rmtree(path)


def _remove_root(folder: Path) -> None:
    """Remove the files of the segment that is the index folder itself, and no others, unless it is locked.

    Its manifest, which lists them, is renamed first, so that no reader can lock it, and removed last, so that
    the next writer knows what a killed one left.
    """
    manifest, list_of_files = folder / MANIFEST, folder / SUPERSEDED
    if manifest.exists():
        with try_exclusive_lock(manifest) as alone:
            if not alone:
                return
            manifest.rename(list_of_files)
    if not list_of_files.exists():
        return
    try:
        names = [*unseal(list_of_files.read_bytes())["files"], STATE]
    except (ValueError, KeyError, TypeError):  # damaged: nobody knows which files were the segment's
        return
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.parts[0] in (SEGMENTS, DELETED):
            continue
        (folder / path).unlink(missing_ok=True)
        for parent in path.parents[:-1]:
            with contextlib.suppress(OSError):  # not empty, or gone
                (folder / parent).rmdir()
    list_of_files.unlink()
