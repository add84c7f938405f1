"""The segments of an index as of one commit, locked so that no writer removes them."""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, input_error
from qbe.files import shared_lock
from qbe.index.manifest import MANIFEST, Manifest, read_manifest
from qbe.index.segments.commit import COMMIT, ROOT, Commit, Segment, read_commit

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OpenSegment:
    """A segment of an index: its folder, its own manifest, and ``dead``, the rows (n,) int64 of its deleted
    papers, ascending.

    >>> snapshot = open_snapshot(index.folder)
    >>> [(segment.papers, len(segment.dead)) for segment in snapshot.segments]
    [(128, 0)]
    >>> snapshot.close()
    """

    path: Path
    segment: Segment
    manifest: Manifest
    dead: Rows

    @property
    def papers(self) -> int:
        """How many papers it holds, dead ones included."""
        papers: int = self.manifest.corpus["papers"]
        return papers


class Snapshot:
    """The segments of an index as of one commit; until it is closed no writer removes their files.

    >>> first, second = open_snapshot(index.folder), open_snapshot(index.folder)
    >>> first.plain, first.is_same(second)
    (True, True)
    >>> first.close(), second.close()
    (None, None)
    """

    def __init__(self, generation: int, segments: Sequence[OpenSegment], locks: Sequence[int]) -> None:
        """``locks`` are the descriptors of the locked files, which are closed at the end."""
        self.generation, self.segments = generation, segments
        self._release = weakref.finalize(self, _release, locks)

    def close(self) -> None:
        """Release the locks; a second call does nothing."""
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


def _release(locks: Sequence[int]) -> None:
    for descriptor in locks:
        os.close(descriptor)


def open_snapshot(folder: Path) -> Snapshot:
    """The newest commit of an index and its segments, locked against removal from now on.

    Raises IndexFormatError for a folder that is no index, or where a segment is missing or damaged,
    InputError for a file that may not be read.

    >>> open_snapshot(Path("sample"))
    Traceback (most recent call last):
        ...
    qbe.errors.IndexFormatError: sample: expected an index with a manifest.json, found ...
    """
    commit = read_commit(folder)
    while True:
        locks: list[int] = []
        try:
            return _opened(folder, commit, locks)
        except PermissionError as error:
            _release(locks)
            raise input_error(error.filename or folder, error) from error
        except OSError as error:
            _release(locks)
            # A segment that is gone, or going, was superseded between the reading of the commit and here.
            newer = read_commit(folder)
            if newer == commit:
                raise _missing(folder, error) from error
            commit = newer
        except BaseException:
            _release(locks)
            raise


def _opened(folder: Path, commit: Commit | None, locks: list[int]) -> Snapshot:
    """The snapshot of a commit; descriptors are added to ``locks``. Raises OSError for missing files."""
    if commit is None:
        if not (folder / MANIFEST).is_file():
            if read_commit(folder) is not None:
                raise FileNotFoundError  # the first segment was superseded just now
            read_manifest(folder)  # says what is wrong with the folder
        locks.append(shared_lock(folder / MANIFEST))
        manifest = read_manifest(folder)
        segment = Segment(ROOT, manifest.digest)
        return Snapshot(0, [OpenSegment(folder, segment, manifest, np.zeros(0, np.int64))], locks)
    for segment in commit.segments:
        locks.append(shared_lock(folder / segment.name / MANIFEST))  # noqa: PERF401  (closed even if the next fails)
    return Snapshot(commit.generation, [_open_segment(folder, segment) for segment in commit.segments], locks)


def _open_segment(folder: Path, segment: Segment) -> OpenSegment:
    path = folder / segment.name
    manifest = read_manifest(path)
    if manifest.digest != segment.digest:
        raise IndexFormatError(
            f"{path}: expected the segment {segment.digest[:12]} of {folder / COMMIT}, found "
            f"{manifest.digest[:12]}; put back a whole copy of the index, or build it again"
        )
    return OpenSegment(path, segment, manifest, _dead_rows(folder, segment, manifest))


def _dead_rows(folder: Path, segment: Segment, manifest: Manifest) -> Rows:
    """The dead rows of a segment, read at once: a later commit has other files."""
    if segment.deletions is None:
        return np.zeros(0, np.int64)
    path = folder / segment.deletions.file
    content = path.read_bytes()
    if sha256(content).hexdigest() != segment.deletions.sha256:
        raise IndexFormatError(
            f"{path}: expected the deleted rows of {manifest.corpus['papers']} papers, found other bytes; "
            "put back a whole copy of the index, or build it again"
        )
    rows: Rows = np.load(io.BytesIO(content))
    return rows


def _missing(folder: Path, error: OSError) -> IndexFormatError:
    return IndexFormatError(
        f"{error.filename or folder}: expected a file that {folder / COMMIT} names, found "
        f"{error.strerror or 'none'}; put back a whole copy of the index, or build it again"
    )
