"""The segments of an index as of one commit, locked so that no writer removes them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, InputError, input_error
from qbe.files import shared_lock
from qbe.index.manifest import MANIFEST, Manifest, read_manifest
from qbe.index.openfiles import OpenFiles
from qbe.index.segments.commit import COMMIT, ROOT, Commit, Segment, read_commit

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OpenSegment:
    """A segment of an index: its files, its own manifest, and ``dead``, the rows (n,) int64 of its deleted
    papers, ascending.

    >>> snapshot = open_snapshot(index.folder)
    >>> [(segment.papers, len(segment.dead)) for segment in snapshot.segments]
    [(128, 0)]
    >>> snapshot.close()
    """

    files: OpenFiles
    segment: Segment
    manifest: Manifest
    dead: Rows

    @property
    def papers(self) -> int:
        """How many papers it holds, dead ones included."""
        papers: int = self.manifest.corpus["papers"]
        return papers


class Snapshot:
    """The segments of an index as of one commit. All files are open, so that it does not change whatever is
    done to the folder; and until it is closed no writer removes them.

    >>> first, second = open_snapshot(index.folder), open_snapshot(index.folder)
    >>> first.plain, first.is_same(second)
    (True, True)
    >>> first.close(), second.close()
    (None, None)
    """

    def __init__(self, generation: int, segments: Sequence[OpenSegment], locks: ExitStack) -> None:
        """``locks`` are closed at the end."""
        self.generation, self.segments = generation, segments
        self._release = weakref.finalize(self, locks.close)

    def close(self) -> None:
        """Close the files and release the locks; a second call does nothing."""
        for segment in self.segments:
            segment.files.close()
        self._release()

    @property
    def plain(self) -> bool:
        """Whether there is one segment without dead papers."""
        return len(self.segments) == 1 and not len(self.segments[0].dead)

    def is_same(self, other: Snapshot) -> bool:
        """Whether another snapshot of the same folder is of the same commit."""
        return self._commit == other._commit

    @property
    def _commit(self) -> tuple[int, list[Segment]]:
        return self.generation, [each.segment for each in self.segments]


def open_snapshot(folder: Path) -> Snapshot:
    """The newest commit of an index and its segments, their files opened, and locked against removal from now
    on.

    Raises IndexFormatError for a folder that is no index, or where a segment is missing or damaged,
    InputError for a file that may not be read.

    >>> open_snapshot(Path("sample"))
    Traceback (most recent call last):
        ...
    qbe.errors.IndexFormatError: sample: expected an index with a manifest.json, found ...
    """
    commit = read_commit(folder)
    while True:
        held = _held(folder)  # so that no other folder can be taken for this one
        try:
            snapshot = _opened(folder, commit)
        except (OSError, IndexFormatError) as error:
            # A segment that is gone, or going, was superseded between the reading of the commit and here; or
            # the folder was exchanged for another.
            if _is_at(folder, held) and read_commit(folder) == commit:
                if isinstance(error, IndexFormatError):
                    raise
                raise _unopened(folder, error) from error
        else:
            if _is_at(folder, held):
                return snapshot
            snapshot.close()
        finally:
            if held is not None:
                os.close(held)
        commit = read_commit(folder)


def _held(folder: Path) -> int | None:
    """A descriptor of a folder; None where there is none."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unopened(folder, error) from error


def _is_at(folder: Path, held: int | None) -> bool:
    """Whether a folder is still the one that is held, or as absent as it was."""
    if held is None:
        return not folder.is_dir()
    try:
        return os.path.samestat(folder.stat(), os.fstat(held))
    except OSError:
        return False


def _opened(folder: Path, commit: Commit | None) -> Snapshot:
    """The snapshot of a commit. Raises OSError for missing files."""
    with ExitStack() as locks:
        if commit is None:
            manifest = read_manifest(folder)
            locks.callback(os.close, shared_lock(folder / MANIFEST))
            segment = Segment(ROOT, manifest.digest)
            files = OpenFiles(folder, manifest.files)
            opened = [OpenSegment(files, segment, manifest, np.zeros(0, np.int64))]
            return Snapshot(0, opened, locks.pop_all())
        for segment in commit.segments:
            locks.callback(os.close, shared_lock(folder / segment.name / MANIFEST))
        opened = [_open_segment(folder, segment) for segment in commit.segments]
        return Snapshot(commit.generation, opened, locks.pop_all())


def _open_segment(folder: Path, segment: Segment) -> OpenSegment:
    path = folder / segment.name
    manifest = read_manifest(path)
    if manifest.digest != segment.digest:
        raise IndexFormatError(
            f"{path}: expected the segment {segment.digest[:12]} of {folder / COMMIT}, found "
            f"{manifest.digest[:12]}; put back a whole copy of the index, or build it again"
        )
    dead = dead_rows(folder, segment, manifest.corpus["papers"])
    return OpenSegment(OpenFiles(path, manifest.files), segment, manifest, dead)


def dead_rows(folder: Path, segment: Segment, papers: int) -> Rows:
    """The dead rows of a segment of so many papers, read at once: a later commit has other files.

    Raises IndexFormatError where they are not those of the commit, OSError where there are none.
    """
    if segment.deletions is None:
        return np.zeros(0, np.int64)
    path = folder / segment.deletions.file
    content = path.read_bytes()
    if sha256(content).hexdigest() != segment.deletions.sha256:
        raise IndexFormatError(
            f"{path}: expected the deleted rows of {papers} papers, found other bytes; put back a whole copy "
            "of the index, or build it again"
        )
    # Not by np.load, whose parser of headers fails now and then in several threads at a time
    # (https://github.com/python/cpython/issues/106905).
    return np.frombuffer(content, np.int64, offset=10 + int.from_bytes(content[8:10], "little"))


def _unopened(folder: Path, error: OSError) -> IndexFormatError | InputError:
    if isinstance(error, PermissionError):
        return input_error(error.filename or folder, error)
    return IndexFormatError(
        f"{error.filename or folder}: expected a file of the index, found {error.strerror or 'none'}; the "
        "index is damaged: build it again (qbe doctor --index shows what is intact)"
    )
