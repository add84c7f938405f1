"""One write to an index: locked against other writers, from one commit to the next."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from qbe.errors import file_error
from qbe.index.building.staging import STATE
from qbe.index.checking import write_lock
from qbe.index.manifest import MANIFEST, SUPERSEDED, unseal
from qbe.index.rows import Rows
from qbe.index.snapshot import (
    COMMIT,
    DELETED,
    ROOT,
    SEGMENTS,
    Commit,
    Deletions,
    OpenSegment,
    Segment,
    Snapshot,
    deletions_name,
    open_snapshot,
    read_commit,
    write_commit,
)
from qbe.index.views import counts_without
from qbe.util.files import atomic_file, sync, try_exclusive_lock

log = logging.getLogger(__name__)

MANY_SEGMENTS = 16
"""Beyond this number a writer advises to compact: each segment is searched by itself."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did, in papers, and the index afterwards: how many living ``papers`` it has in how many
    ``segments``, and its ``generation``. ``replaced`` papers are counted neither as ``added`` nor as
    ``deleted``. ``left_out`` counts, by the reason, records of the corpus that were skipped.

    ``unchanged`` papers of the corpus were in the index as they are. ``kept`` are the ids of papers that stay
    as the index has them although the corpus has other content for them, or a record that cannot be used.
    ``deleted_titles`` are those of papers that the corpus lacks, by id.
    """

    added: int
    replaced: int
    deleted: int
    papers: int
    segments: int
    generation: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    unchanged: int = 0
    kept: tuple[str, ...] = ()
    deleted_titles: Mapping[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        """The numbers in a line.

        >>> Written(1, 0, 2, 127, 2, 1).summary()
        '1 papers added, 0 replaced, 2 deleted, now 127 in 2 segments, generation 1'
        """
        segments = "1 segment" if self.segments == 1 else f"{self.segments} segments"
        unchanged = f"{self.unchanged:,} unchanged, " if self.unchanged else ""
        return (
            f"{self.added:,} papers added, {self.replaced:,} replaced, {self.deleted:,} deleted, "
            f"{unchanged}now {self.papers:,} in {segments}, generation {self.generation}"
        )


@contextlib.contextmanager
def writing(folder: str | Path) -> Iterator[Snapshot]:
    """The newest commit of an index, while no other process writes to it or rebuilds it.

    Before and after the block files that no commit names are removed, unless a reader locks them. Raises
    IndexFormatError for a folder that is no index or a damaged one, IndexBuildError where another process
    writes to it, OutputError where it cannot be written.

    >>> with writing("indexes/sample") as snapshot:
    ...     len(snapshot.segments), snapshot.generation
    (1, 0)
    """
    folder = Path(os.path.realpath(folder))  # the lock file is named after its last part
    open_snapshot(folder).close()  # a folder that is no index gets no lock file
    with write_lock(folder):
        clean(folder)
        try:
            with contextlib.closing(open_snapshot(folder)) as snapshot:
                yield snapshot
        except OSError as error:
            raise file_error(error, folder) from error
        finally:
            clean(folder)


def without(snapshot: Snapshot, rows: Rows) -> list[Segment]:
    """The segments of the next commit, where the papers of these rows (n,) are dead too.

    The dead rows of a segment are written to a file, which is on the disk when this returns. A segment
    without any other paper is left out.
    """
    segments = []
    first = 0
    for opened in snapshot.segments:
        inside = np.unique(rows[(rows >= first) & (rows < first + opened.papers)]) - first
        first += opened.papers
        if not len(inside):
            segments.append(opened.segment)
        elif len(opened.dead) + len(inside) < opened.papers:
            deletions = _delete(snapshot, opened, inside)
            segments.append(Segment(opened.segment.name, opened.segment.digest, deletions))
    return segments


def _delete(snapshot: Snapshot, opened: OpenSegment, rows: Rows) -> Deletions:
    """Write the dead rows of a segment, to which some more are added."""
    name, content = deletions_name(opened.segment.name, snapshot.generation + 1), io.BytesIO()
    np.save(content, np.sort(np.concatenate([opened.dead, rows])))
    with atomic_file(snapshot.folder / name) as stream:
        stream.write(content.getvalue())
    sync(snapshot.folder / DELETED)
    return Deletions(name, hashlib.sha256(content.getvalue()).hexdigest(), counts_without(opened, rows))


def commit(snapshot: Snapshot, segments: Sequence[Segment]) -> int:
    """Make these segments those of the index; returns the new generation."""
    if len(segments) > MANY_SEGMENTS:
        log.warning(
            "%s: %d segments, each of which is searched by itself; compact the index",
            snapshot.folder,
            len(segments),
        )
    generation = snapshot.generation + 1
    write_commit(snapshot.folder, Commit(generation, segments))
    return generation


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
