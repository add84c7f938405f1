"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qbe.files import publish_directory


@contextlib.contextmanager
def staged_folder(destination: Path) -> Iterator[Path]:
    """A hidden folder, which replaces ``destination`` when the block ends without an error.

    When the block raises, ``destination`` stays as it was and the hidden folder is removed.

    >>> with staged_folder(Path("model")) as staged:
    ...     _ = (staged / "config.json").write_text("{}")
    ...     Path("model").exists()
    False
    >>> Path("model/config.json").exists()
    True
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    staged.chmod(0o755)
    try:
        yield staged
        publish_directory(staged, destination)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
