"""The commit of an index that was updated: the segments that it consists of, and their dead rows.

A segment is a folder as a build leaves it, and is never changed. An index never updated has no commit:
the folder is its only segment. Where there is a commit, files that it does not name are not the index's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import IndexFormatError
from qbe.files import sync, write_text
from qbe.index.manifest import seal, unseal

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
    ``sentences``; ``tagger`` (None where nothing was predicted) holds the counts of
    `qbe.index.labels.describe_predictions` without the dead papers.
    """

    file: str
    sha256: str
    corpus: Mapping[str, int]
    tagger: Mapping[str, Mapping[str, int]] | None


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
    return Segment(name, digest, None if deletions is None else Deletions(**deletions))


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
