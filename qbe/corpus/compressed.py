"""Compressed sources: gzip, xz, Zstandard, and zip archives of one file, as raw streams of bounded pieces."""

from __future__ import annotations

import contextlib
import io
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from qbe.corpus.unknown import kind_of_archive, not_recognized
from qbe.errors import CorpusError, MissingDependencyError

BUFFER_BYTES = 1 << 20

_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PK\3\4": ".zip"}
_COMPRESSIONS = frozenset(_MAGIC.values())
_PIECE_BYTES = 1 << 13
_ZSTANDARD_BYTES = 1 << 10
"""A block of 4 bytes may become 128 KiB: of so little input at a time the output is at most 32 MiB."""


class DamagedError(Exception):
    """Compressed data that is truncated or corrupt; the message says what the decompressor said."""


def compression(source: str | Path, raw: io.BufferedReader) -> str:
    r"""The suffix of the compression of a source, by its name, else by its first bytes; '' for none.

    >>> compression("papers", io.BufferedReader(io.BytesIO(b"\x1f\x8b\x08")))
    '.gz'
    """
    suffix = Path(source).suffix.lower()
    if suffix in _COMPRESSIONS:
        return suffix
    start = raw.peek(8)[:8]
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")


def decompressed(
    raw: io.BufferedReader, suffix: str, name: str, stack: contextlib.ExitStack
) -> io.BufferedReader:
    """The bytes that are compressed as ``suffix`` says.

    Raises DamagedError, and what the decompressors raise, also while the stream is read; CorpusError for an
    archive of several files, MissingDependencyError for .zst without ``zstandard``.
    """
    stream: Any
    match suffix:
        case ".gz":
            import gzip

            stream = gzip.GzipFile(fileobj=raw)
        case ".xz":
            stream = lzma.LZMAFile(raw)  # noqa: SIM115 (the stack closes it)
        case ".zst":
            return stack.enter_context(stream_of(_of_zstandard(raw, name)))
        case ".zip":
            stream = _zip_member(raw, name)
        case _:
            return raw
    # The buffer turns the decompressors' slow readline into a fast one.
    return stack.enter_context(io.BufferedReader(stream, BUFFER_BYTES))


def _zip_member(raw: io.BufferedReader, name: str) -> IO[bytes]:
    """The only file of an archive, apart from files that macOS adds."""
    if not raw.seekable():
        raise CorpusError(f"{name}: a zip archive cannot be read from a pipe; unpack it first")
    try:
        archive = zipfile.ZipFile(raw)
        members = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
        if kind := kind_of_archive(members):
            raise not_recognized(name, kind)
        members = [m for m in members if not Path(m).name.startswith(".")]
        if len(members) != 1:
            raise CorpusError(f"{name}: expected an archive of one file, found {len(members)}; unpack it")
        return archive.open(members[0])
    except (NotImplementedError, RuntimeError) as error:  # an unknown compression, a password
        raise DamagedError(error) from error


def _of_zstandard(stream: io.BufferedReader, name: str) -> Iterator[bytes]:
    """What the frames of Zstandard data hold; the reader of ``zstandard`` does not see that a file is cut."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingDependencyError(
            f"{name}: reading .zst needs the package zstandard; pip install zstandard"
        ) from error
    context = zstandard.ZstdDecompressor()
    frame, data, is_cut = context.decompressobj(write_size=_PIECE_BYTES), b"", False
    while data := data or stream.read(_ZSTANDARD_BYTES):
        try:
            yield frame.decompress(data)
        except zstandard.ZstdError as error:
            raise DamagedError(error) from error
        is_cut, data = not frame.eof, frame.unused_data
        if not is_cut:
            frame = context.decompressobj(write_size=_PIECE_BYTES)
    if is_cut:
        raise EOFError("the data end within a frame")


def stream_of(pieces: Iterator[bytes]) -> io.BufferedReader:
    """A stream of bytes that are given piece by piece.

    >>> stream_of(iter([b"fi", b"", b"sh"])).read()
    b'fish'
    """
    return io.BufferedReader(_Pieces(pieces), BUFFER_BYTES)


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
