"""What lies where a build is to put its result: nothing, something to be replaced, or that result already."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from qbe.errors import IndexBuildError, IndexFormatError
from qbe.index.building.foreign import check_own_files
from qbe.index.building.staging import Place
from qbe.index.building.unfinished import STATE, discard_stale
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
    """None when there is something to build, and no unfinished build is in the way any more; what was read
    when a build to resume has ended already.

    ``kind`` names what may be in the place ("an index"), ``read`` reads it or raises IndexFormatError, and
    ``is_result`` says whether it is what the build would make. Raises IndexBuildError for another path,
    for files that are not an index's, for what would have to be overwritten, and for an unfinished build
    that is neither resumed nor overwritten.

    >>> from qbe.index.building.staging import build_place
    >>> with build_place(Path("indexes/sample")) as place:
    ...     check_target(place, "an index", read_index, lambda existing: True, overwrite=False, resume=False)
    Traceback (most recent call last):
        ...
    qbe.errors.IndexBuildError: ...sample is an index already; choose another `folder`, or replace it with ...
    """
    existing = _existing_result(place, kind, read, is_result, overwrite=overwrite, resume=resume)
    if existing is None:
        discard_stale(place.staging, overwrite, resume)
    return existing


def check_index_target(
    place: Place, is_result: Callable[[Commit | Manifest], bool], *, overwrite: bool, resume: bool
) -> Commit | Manifest | None:
    """`check_target` where an index is to be."""
    return check_target(place, "an index", read_index, is_result, overwrite=overwrite, resume=resume)


def _existing_result(
    place: Place,
    kind: str,
    read: Callable[[Path], Found],
    is_result: Callable[[Found], bool],
    *,
    overwrite: bool,
    resume: bool,
) -> Found | None:
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
