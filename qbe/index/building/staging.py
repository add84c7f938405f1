"""The hidden folder in which a build works: locked, kept for resuming when the build is interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from qbe.errors import IndexBuildError
from qbe.files import lock, resumable_staging
from qbe.index.building.unfinished import STATE


class Place(NamedTuple):
    """Where a build puts its result, ``output``, and the hidden folder beside it where it works.

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
    with lock(output.parent / f".{output.name}.lock") as alone:
        if not alone:
            raise IndexBuildError(f"{output} is being built by another process; wait until it ends")
        with resumable_staging(staging, (staging / STATE).exists):
            yield Place(output, staging, output)
