"""Files in an index folder that are not the index's: they are never removed together with it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from qbe.errors import IndexBuildError
from qbe.index.building.unfinished import STATE
from qbe.index.manifest import MANIFEST, PART, SUPERSEDED
from qbe.index.segments.commit import COMMIT, DELETED, SEGMENTS

_NAMES = {MANIFEST, PART, SUPERSEDED, COMMIT, STATE}
_FOLDERS = {SEGMENTS, DELETED}


def check_own_files(folder: Path) -> None:
    """Raise IndexBuildError where an index or a part holds files that no manifest of it lists: replacing the
    folder would remove them.

    >>> folder = Path("foreign")
    >>> folder.mkdir()
    >>> _ = (folder / "notes.txt").write_text("mine")
    >>> check_own_files(folder)
    Traceback (most recent call last):
        ...
    qbe.errors.IndexBuildError: expected only an index's own files in foreign, found notes.txt; ...
    """
    known = {*_NAMES}
    for name in (MANIFEST, PART, SUPERSEDED):
        if (folder / name).is_file():
            with suppress(ValueError, KeyError, TypeError):  # a damaged one lists none
                known.update(json.loads((folder / name).read_bytes())["files"])
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        partial = relative.name.startswith(f".{COMMIT}.")  # of a commit that a killed writer left
        if (path.is_dir() and not path.is_symlink()) or relative.parts[0] in _FOLDERS or partial:
            continue
        if relative.as_posix() not in known:
            raise IndexBuildError(
                f"expected only an index's own files in {folder}, found {relative}; move it away, or choose "
                "another `folder`"
            )
