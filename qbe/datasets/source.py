"""Where the release of a collection of whole-abstract queries is found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from qbe.errors import DatasetError


def find_source(name: str, source: Path | None, files: Sequence[str], where: str) -> Path:
    """The folder of a release: ``source`` if given, else ``$QBE_DATA/name``.

    Raises DatasetError, which says ``where`` to get it, where there is none or it lacks one of ``files``.
    """
    data = os.environ.get("QBE_DATA")
    if source is None and data:
        source = Path(data, name)
    if source is None or not source.is_dir():
        found = f"no folder {source}" if source else "neither"
        raise DatasetError(
            f"expected {name}'s release in --source or in $QBE_DATA/{name}, found {found}; get it from "
            f"{where}"
        )
    absent = [file for file in files if not (source / file).is_file()]
    if absent:
        raise DatasetError(
            f"{source}: expected the files of {name}'s release, found no {', '.join(absent)}; get them "
            f"from {where}"
        )
    return source
