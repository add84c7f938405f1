"""The file next to an index that lists the records of its corpus that were left out, and why."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from qbe.corpus.rejected import SUFFIX, RejectedRecords
from qbe.errors import CorpusError, IndexBuildError
from qbe.index.building.staging import Place
from qbe.util.files import atomic_file

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
        is_replaceable = not line or set(json.loads(line)) == {"where", "reason", "message"}
    except (OSError, ValueError, TypeError):
        is_replaceable = False
    if not is_replaceable:
        raise IndexBuildError(
            f"expected no file, or an earlier list of skipped records, at {path}, found another file; "
            "move it away, or choose another `folder`"
        )


@contextlib.contextmanager
def recorded(place: Place) -> Iterator[RejectedRecords]:
    """Records that are left out, listed in the folder of an unfinished build; where the corpus then cannot be
    used, beside the index that was to be, or that a segment was to be added to.
    """
    path = place.staging / REJECTED
    with path.open("wb") as stream:
        left_out = RejectedRecords(stream)
        try:
            yield left_out
        except CorpusError as error:
            stream.flush()
            if left_out:
                listed = rejected_file(place.whole)
                if place.output == place.whole:
                    path.replace(listed)
                else:  # an index that is there keeps what it lists
                    add_rejected(path, listed)
                raise CorpusError(f"{error} ({listed} lists them)") from None
            raise


def publish_rejected(place: Place) -> None:
    """Put the list beside the result, or remove an older one where nothing was left out.

    That of a segment waits there for `add_rejected`.
    """
    path = place.staging / REJECTED
    if not path.exists():  # of a build that was killed after this point, or one of parts
        return
    if path.stat().st_size:
        path.replace(rejected_file(place.output))
    else:
        path.unlink()
        rejected_file(place.output).unlink(missing_ok=True)


def add_rejected(path: Path, listed: Path) -> None:
    r"""Move the lines of a list, if there is one, to the end of another, which may not be there yet. Raises
    OutputError.

    >>> _ = Path("segment").write_text("2\n"), Path("whole").write_text("1\n")
    >>> add_rejected(Path("segment"), Path("whole"))
    >>> Path("whole").read_text(), Path("segment").exists()
    ('1\n2\n', False)
    """
    if not path.exists():
        return
    with atomic_file(listed) as stream:
        for each in (listed, path):
            if each.exists():
                with each.open("rb") as lines:
                    shutil.copyfileobj(lines, stream)
    path.unlink()
