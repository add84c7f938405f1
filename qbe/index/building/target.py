"""What lies where a build is to put its result: nothing, something to be replaced, or that result already."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from qbe.errors import IndexBuildError, IndexFormatError
from qbe.index.building.foreign import check_own_files
from qbe.index.building.staging import Place
from qbe.index.building.unfinished import STATE
from qbe.index.manifest import Manifest, read_manifest
from qbe.index.segments.commit import Commit, read_commit

log = logging.getLogger(__name__)

Found = TypeVar("Found")


def check_target(
    place: Place,
    kind: str,
    read: Callable[[Path], Found],
    is_result: Callable[[Found], bool],
    *,
    overwrite: bool,
    resume: bool,
) -> Found | None:
    """None when there is something to build; what was read when a build to resume has ended already.

    ``kind`` names what may be in the place ("an index"), ``read`` reads it or raises IndexFormatError, and
    ``is_result`` says whether it is what the build would make. Raises IndexBuildError for another path,
    for files that are not an index's, and for what would have to be overwritten.

    >>> from qbe.index.building.staging import build_place
    >>> with build_place(Path("indexes/sample")) as place:
    ...     check_target(place, "an index", read_index, lambda existing: True, overwrite=False, resume=False)
    Traceback (most recent call last):
        ...
    qbe.errors.IndexBuildError: ...sample is an index already; choose another `folder`, or replace it with ...
    """
    output = place.output
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        existing = read(output)
    except IndexFormatError as error:
        raise IndexBuildError(
            f"expected no such path, or {kind}, at {output}: {error}; choose another `folder`, or remove it"
        ) from error
    (output / STATE).unlink(missing_ok=True)  # left by a build that was killed as it ended
    if overwrite:
        check_own_files(output)
        return None
    unfinished = (place.staging / STATE).exists()
    if resume and not unfinished and is_result(existing):
        log.info("the build of %s had ended; nothing is left to do", output)
        return existing
    advice = (
        "go on replacing it with `overwrite` and `resume`" if unfinished else "replace it with `overwrite`"
    )
    raise IndexBuildError(f"{output} is {kind} already; choose another `folder`, or {advice}")


def read_index(folder: Path) -> Commit | Manifest:
    """The manifest of an index as it was built, the commit of one that has shards or was updated.

    Raises IndexFormatError for a folder that is no index or a damaged one.

    >>> read_index(Path("indexes/sample")).corpus["papers"]
    128
    """
    return read_commit(folder) or read_manifest(folder)
