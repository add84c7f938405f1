"""The hidden folder in which a build works: locked, kept for resuming when the build is interrupted."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import IndexBuildError, IndexFormatError
from qbe.index.checking import check_own_files, reason_of, write_lock
from qbe.index.manifest import Manifest, read_manifest
from qbe.index.snapshot import Commit, read_commit
from qbe.util.files import Unfinished, resumable_staging, sync_tree, write_text


class Place(NamedTuple):
    """Where a build puts its result, ``output``, and the hidden folder next to it where it works.

    ``whole`` is the whole index: the result itself, or what it is a segment of.
    """

    output: Path
    staging: Path
    whole: Path


@contextmanager
def build_place(output: Path) -> Iterator[Place]:
    """The places of a build at ``output``, while no other process builds there.

    When the block is interrupted, finished stages stay in the hidden folder; when it ends otherwise, that
    folder is removed. Raises IndexBuildError where another process builds the same, OutputError where the
    block could not write.

    >>> with build_place(Path("indexes/mine")) as place:
    ...     place.output.name, place.staging.name
    ('mine', '.mine.building')
    """
    output = Path(os.path.realpath(output))  # "." has no name, and a link must stay
    staging = output.parent / f".{output.name}.building"
    with write_lock(output), resumable_staging(staging, (staging / STATE).exists):
        yield Place(output, staging, output)


@contextmanager
def segment_place(folder: Path, whole: Path) -> Iterator[Place]:
    """The places of a build of a segment at ``folder`` of the index ``whole``; whatever happens, nothing of
    the work stays in the hidden folder.

    >>> with segment_place(Path("indexes/mine/segments/000002"), Path("indexes/mine")) as place:
    ...     place.staging.name
    '.000002.building'
    """
    staging = folder.with_name(f".{folder.name}.building")
    try:
        yield Place(folder, staging, whole)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


log = logging.getLogger(__name__)

STATE = "build.json"

State = dict[str, Any]
"""``inputs`` (settings, sources, encoder), ``counts``, ``tagger``, and ``lucene`` once it is done."""


def unfinished_build(output: Path) -> bool:
    """Whether an interrupted build at ``output`` has left finished work, which another one can resume.

    >>> unfinished_build(Path("indexes/mine"))
    False
    """
    output = Path(os.path.realpath(output))
    return (output.parent / f".{output.name}.building" / STATE).exists()


def _unfinished(staging: Path) -> Unfinished:
    remedy = "discard it with `overwrite` alone"
    return Unfinished(staging, STATE, "build", "the corpus and settings", remedy, IndexBuildError)


def save_state(staging: Path, state: State) -> None:
    """Flush the files of a finished stage to the disk, then write the state. Raises OSError or OutputError.

    >>> folder = Path(".stopped.building")
    >>> folder.mkdir()
    >>> save_state(folder, {"inputs": {"encoder": None}, "counts": {"papers": 2}})
    >>> read_state(folder, {"encoder": None})["counts"]
    {'papers': 2}
    """
    sync_tree(staging)
    write_text(staging / STATE, json.dumps(state, indent=1))


def read_state(staging: Path, inputs: dict[str, Any]) -> State | None:
    """The state of an unfinished build of the same inputs; None where no stage was finished.

    Removes partially written files. Raises IndexBuildError where the inputs differ.

    >>> read_state(Path(".absent.building"), {"encoder": None}) is None
    True
    """
    unfinished = _unfinished(staging)
    state = unfinished.read_state()
    if state is None:
        return None
    unfinished.check_inputs(state["inputs"], inputs)
    unfinished.remove_partial_files()
    log.info("going on with the unfinished build in %s", staging)
    return state


def read_index(folder: Path) -> Commit | Manifest:
    """The manifest of an index as it was built, the commit of one that has shards or was updated; raises
    IndexFormatError for a folder that is no index or a damaged one.
    """
    return read_commit(folder) or read_manifest(folder)


def check_target(
    place: Place,
    is_result: Callable[[Any], bool],
    *,
    overwrite: bool,
    resume: bool,
    kind: str = "an index",
    read: Callable[[Path], Any] = read_index,
) -> Any:
    """None when there is something to build, and no unfinished build is in the way any more; what was read
    when a build to resume has ended already.

    ``kind`` names what may be in the place, ``read`` reads it or raises IndexFormatError, and ``is_result``
    says whether it is what the build would make. Raises IndexBuildError for another path, for files that are
    not an index's, for what would have to be overwritten, and for an unfinished build that is neither resumed
    nor overwritten.

    >>> with build_place(Path("indexes/sample")) as place:
    ...     check_target(place, lambda existing: True, overwrite=False, resume=False)
    Traceback (most recent call last):
        ...
    qbe.errors.IndexBuildError: ...sample is an index already; choose another `folder`, or replace it with ...
    """
    output, unfinished = place.output, (place.staging / STATE).exists()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        try:
            existing = read(output)
        except IndexFormatError as error:
            found = "other files" if isinstance(error.__cause__, FileNotFoundError) else reason_of(error)
            raise IndexBuildError(
                f"expected no such path, or {kind}, at {output}, found {found}; choose another `folder`, or "
                "remove it"
            ) from error
        (output / STATE).unlink(missing_ok=True)  # left by a build that was killed as it ended
        if not overwrite and resume and not unfinished and is_result(existing):
            log.info("the build of %s had ended; nothing is left to do", output)
            return existing
        if not overwrite:
            how = "replace it with `overwrite`"
            if unfinished:
                how = "go on replacing it with `overwrite` and `resume`"
            raise IndexBuildError(f"{output} is {kind} already; choose another `folder`, or {how}")
        check_own_files(output, {STATE})
    if place.staging.exists() and not resume:
        if unfinished and not overwrite:
            raise _unfinished(place.staging).in_the_way()
        shutil.rmtree(place.staging)
    return None
