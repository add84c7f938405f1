"""What every build does around its work: it is alone, loses nothing that is there, and can be resumed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from qbe.errors import IndexBuildError
from qbe.files import lock, resumable_staging
from qbe.index.building.unfinished import STATE, discard_stale

T = TypeVar("T")

Step = Callable[[Path, Path], T]
"""Takes the output and the hidden folder beside it in which it is built."""


def guarded(output: Path, ended: Step[T | None], build: Step[T], *, overwrite: bool, resume: bool) -> T:
    """Build something at ``output`` by way of a hidden folder beside it.

    ``ended`` gives what an earlier build has finished already, None where there is something to do, or
    raises for what is in the way. When ``build`` is interrupted, finished stages stay for another try with
    ``resume``.
    Raises IndexBuildError where another process builds the same or an unfinished build is in the way.
    """
    output = Path(os.path.realpath(output))  # "." has no name, and a link must stay
    staging = output.parent / f".{output.name}.building"
    with lock(output.parent / f".{output.name}.lock") as alone:
        if not alone:
            raise IndexBuildError(f"{output} is being built by another process; wait until it ends")
        with resumable_staging(staging, (staging / STATE).exists):
            finished = ended(output, staging)
            if finished is None:
                discard_stale(staging, overwrite, resume)
                finished = build(output, staging)
            return finished
