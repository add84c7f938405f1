"""The segments of an index as of one commit, locked so that no writer removes them."""

from __future__ import annotations

import dataclasses
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, InputError, input_error
from qbe.index.manifest import MANIFEST, Manifest, read_manifest, seal, unseal
from qbe.index.openfiles import OpenFiles
from qbe.util.files import shared_lock, sync, write_text

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

    def __init__(
        self, folder: Path, generation: int, segments: Sequence[OpenSegment], locks: ExitStack
    ) -> None:
        """``folder`` is that of the index; ``locks`` are closed at the end."""
        self.folder, self.generation, self.segments = folder, generation, segments
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
            return Snapshot(folder, 0, opened, locks.pop_all())
        for segment in commit.segments:
            locks.callback(os.close, shared_lock(folder / segment.name / MANIFEST))
        opened = [_open_segment(folder, segment) for segment in commit.segments]
        return Snapshot(folder, commit.generation, opened, locks.pop_all())


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


COMMIT = "segments.json"
ROOT = "."
"""The name of the segment that is the index folder itself."""
SEGMENTS = "segments"
DELETED = "deleted"

_FORMAT = 2
_READABLE = (1, 2)
"""Formats that can be read: 1 is 2 without a checksum."""
_NAME = re.compile(rf"\.|{SEGMENTS}/\d{{6,}}")
_FILE = re.compile(rf"{DELETED}/(root|\d{{6,}})\.\d{{6,}}\.npy")


@dataclass(frozen=True, slots=True)
class Deletions:
    """The dead papers of a segment.

    ``file`` holds their rows (n,) int64, ascending, and has the digest ``sha256``. ``corpus`` counts the
    segment's other ``papers``, how many of them came ``labelled`` or were ``predicted``, and their
    ``sentences``.
    """

    file: str
    sha256: str
    corpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment: its folder below the index's, its manifest's digest, and its dead papers, if any."""

    name: str
    digest: str
    deletions: Deletions | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The segments of an index, in the order of their rows; ``generation`` grows by one with each commit.

    >>> Commit(1, [Segment("segments/000001", "digest")]).segments[0].deletions is None
    True
    """

    generation: int
    segments: Sequence[Segment]


def segment_name(generation: int) -> str:
    """The name of the segment that a commit adds, which no other one ever has.

    >>> segment_name(3)
    'segments/000003'
    """
    return f"{SEGMENTS}/{generation:06d}"


def deletions_name(segment: str, generation: int) -> str:
    """The file of the rows of a segment's deleted papers as of the commit of that generation.

    >>> deletions_name(".", 3), deletions_name("segments/000003", 4)
    ('deleted/root.000003.npy', 'deleted/000003.000004.npy')
    """
    name = "root" if segment == ROOT else segment.removeprefix(f"{SEGMENTS}/")
    return f"{DELETED}/{name}.{generation:06d}.npy"


def write_commit(folder: Path, commit: Commit) -> None:
    """Replace the commit of an index in one step; all files that it names must be on the disk already.

    >>> folder = Path("committed")
    >>> folder.mkdir()
    >>> write_commit(folder, Commit(2, [Segment(".", "digest"), Segment("segments/000002", "another")]))
    >>> [segment.name for segment in read_commit(folder).segments]
    ['.', 'segments/000002']
    """
    sync(folder)
    record = {"format_version": _FORMAT, **dataclasses.asdict(commit)}
    write_text(folder / COMMIT, seal(record))
    sync(folder)


def read_commit(folder: Path) -> Commit | None:
    """The commit of an index; None where it has none, as after a plain build.

    Raises IndexFormatError for one that is damaged or of another format.

    >>> read_commit(Path("indexes/sample")) is None
    True
    """
    path = folder / COMMIT
    try:
        record = unseal(path.read_bytes())
        version = record.pop("format_version")
        if version not in _READABLE:
            raise IndexFormatError(
                f"{path}: expected segments of format {' or '.join(map(str, _READABLE))}, found format "
                f"{version}; use the version of qbe that wrote them"
            )
        return _checked(
            Commit(record.pop("generation"), [_segment(**segment) for segment in record.pop("segments")])
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IndexFormatError(
            f"{path}: expected the segments of the index, found {error.strerror}; check the path"
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise IndexFormatError(
            f"{path}: expected the segments of the index, found {error!r}; put back a whole copy of the "
            "index, or build it again"
        ) from error


def _segment(name: str, digest: str, deletions: Mapping[str, Any] | None) -> Segment:
    if deletions is None:
        return Segment(name, digest)
    counted = {key: value for key, value in deletions.items() if key != "tagger"}  # of qbe 0.8
    return Segment(name, digest, Deletions(**counted))


def _checked(commit: Commit) -> Commit:
    """The commit; raises ValueError for names that no commit has."""
    names = [segment.name for segment in commit.segments]
    files = [segment.deletions.file for segment in commit.segments if segment.deletions]
    if not isinstance(commit.generation, int) or commit.generation < 1:
        raise ValueError(f"the generation {commit.generation!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the segments {names}")
    for name, pattern in [*((name, _NAME) for name in names), *((file, _FILE) for file in files)]:
        if not pattern.fullmatch(name):
            raise ValueError(f"the name {name!r}")
    return commit
