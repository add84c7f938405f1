"""The file beside an index that lists the records of its corpus that were left out, and why."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from qbe.corpus.leftout import SUFFIX, LeftOut
from qbe.errors import CorpusError, IndexBuildError

REJECTED = "rejected.jsonl"
"""The same file within an unfinished build."""


def rejected_file(output: Path) -> Path:
    """Where the records that were left out of an index are listed.

    >>> rejected_file(Path("indexes/mine")).name
    'mine.rejected.jsonl'
    """
    output = Path(os.path.realpath(output))  # the current folder has a name, too
    return output.with_name(output.name + SUFFIX)


def check_replaceable(output: Path) -> None:
    """Raise IndexBuildError where a file that is not qbe's is in the place of that list.

    >>> check_replaceable(Path("indexes/none"))
    """
    path = rejected_file(output)
    if not path.exists():
        return
    try:
        with path.open(encoding="utf-8") as stream:
            line = stream.readline()
        own = not line or set(json.loads(line)) == {"where", "reason", "message"}
    except (OSError, ValueError, TypeError):
        own = False
    if not own:
        raise IndexBuildError(
            f"expected no file, or an earlier list of skipped records, at {path}, found another file; "
            "move it away, or choose another `folder`"
        )


@contextlib.contextmanager
def recorded(staging: Path, output: Path) -> Iterator[LeftOut]:
    """Records that are left out, listed in the folder of an unfinished build; where the corpus then cannot be
    used, beside the index that was to be.
    """
    path = staging / REJECTED
    with path.open("wb") as stream:
        left_out = LeftOut(stream)
        try:
            yield left_out
        except CorpusError as error:
            stream.flush()
            if left_out:
                path.replace(rejected_file(output))
                raise CorpusError(f"{error} ({rejected_file(output)} lists them)") from None
            raise


def publish_rejected(staging: Path, output: Path) -> None:
    """Put the list in its place, or remove an older one where nothing was left out."""
    path = staging / REJECTED
    if not path.exists():  # of a build that was killed behind this point, or one of parts
        return
    if path.stat().st_size:
        path.replace(rejected_file(output))
    else:
        path.unlink()
        rejected_file(output).unlink(missing_ok=True)
