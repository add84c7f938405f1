"""How much of the files of a corpus has been read, by their bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path


class BytesRead:
    """Counts the bytes read of some files, compressed as they are.

    >>> _ = Path("a.jsonl").write_bytes(b"12345678")
    >>> read = BytesRead(["a.jsonl"])
    >>> with Path("a.jsonl").open("rb") as stream:
    ...     read.follow(stream)
    ...     _ = stream.read(2)
    ...     read.share
    0.25
    """

    def __init__(self, files: Iterable[str]) -> None:
        """``files`` are all that will be read; others than files on a disk have no size, and no share."""
        sizes = [Path(file).stat().st_size if Path(file).is_file() else None for file in files]
        self._total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._before = self._size = 0
        self._stream: io.BufferedReader | None = None

    def follow(self, stream: io.BufferedReader) -> None:
        """Count the bytes of a file that is being opened; all of the one before it have been read."""
        self._before += self._size
        self._size, self._stream = os.fstat(stream.fileno()).st_size, stream

    @property
    def share(self) -> float | None:
        """The share of all bytes that has been read; None where it is not known."""
        if not self._total:
            return None
        return min(1.0, (self._before + self._position()) / self._total)

    def _position(self) -> int:
        if self._stream is None or self._stream.closed:
            return self._size
        return self._stream.tell()
