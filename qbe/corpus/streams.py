"""Bytes of a source: a file, plain or compressed, standard input, or an address that fsspec opens.

The compression follows from the file's suffix (.gz, .xz, .zst, .zip), else from its first bytes, so
that standard input may be compressed too. A zip archive must hold a single file. UTF-16 becomes UTF-8.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from qbe.corpus.encodings import BUFFER_BYTES, as_utf8, stream_of
from qbe.corpus.head import kind_of_archive, not_recognized
from qbe.errors import CorpusError, MissingDependencyError

_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PK\3\4": ".zip"}
_COMPRESSIONS = frozenset(_MAGIC.values())
_PIECE_BYTES = 1 << 13
_ZSTANDARD_BYTES = 1 << 10
"""A block of 4 bytes may become 128 KiB: of so little input at a time the output is at most 32 MiB."""


STDIN = "-"
MAX_LINE_BYTES = 64 << 20
"""A longer line ends in an error instead of filling the memory; real records are far shorter."""

_RETURN = re.compile(rb"(?<=\r)(?!\n)(?=.)", re.DOTALL)
_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class _DamagedError(Exception):
    """Compressed data that is truncated or corrupt; the message says what the decompressor said."""


def _compression(source: str | Path, raw: io.BufferedReader) -> str:
    """The suffix of the compression of a source, by its name, else by its first bytes; '' for none."""
    suffix = Path(source).suffix.lower()
    if suffix in _COMPRESSIONS:
        return suffix
    start = raw.peek(8)[:8]
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")


def _decompressed(
    raw: io.BufferedReader, suffix: str, name: str, stack: contextlib.ExitStack
) -> io.BufferedReader:
    """The bytes that are compressed as ``suffix`` says.

    Raises _DamagedError, and what the decompressors raise, also while the stream is read; CorpusError for an
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
        raise _DamagedError(error) from error


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
            raise _DamagedError(error) from error
        is_cut, data = not frame.eof, frame.unused_data
        if not is_cut:
            frame = context.decompressobj(write_size=_PIECE_BYTES)
    if is_cut:
        raise EOFError("the data end within a frame")


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


def display_name(source: str | Path) -> str:
    """The name of a source in messages: as the user typed it, ``standard input`` for ``-``.

    >>> display_name("-"), display_name("papers.jsonl")
    ('standard input', 'papers.jsonl')
    """
    return "standard input" if str(source) == STDIN else str(source)


def is_folder(source: str) -> bool:
    """Whether a source is a folder; False, not an error, for a path that cannot be examined.

    >>> is_folder("."), is_folder("papers.jsonl")
    (True, False)
    """
    return os.path.isdir(source)  # noqa: PTH112 (`Path.is_dir` raises for folders without permission)


@contextlib.contextmanager
def open_source(source: str | Path, bytes_read: BytesRead | None = None) -> Iterator[io.BufferedReader]:
    """The decompressed bytes of a file, of standard input for ``-``, or of an address such as
    ``s3://bucket/papers.jsonl.gz``, as one buffered stream. ``bytes_read`` counts the bytes of a file.

    Raises CorpusError for a source that cannot be read and for compressed data that is truncated or
    corrupt (also while the block reads), and MissingDependencyError where .zst has no ``zstandard``.

    >>> import gzip
    >>> _ = Path("papers.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    >>> with open_source("papers.jsonl.gz") as stream:
    ...     stream.read()
    b'{}'
    """
    name = display_name(source)
    with contextlib.ExitStack() as stack:
        raw = _open(source, stack)
        if bytes_read is not None and Path(source).is_file():
            bytes_read.follow(raw)
        try:
            yield as_utf8(_decompressed(raw, _compression(source, raw), name, stack), name)
        except (_DamagedError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise _damaged(name, error) from error
        except OSError as error:
            if error.errno is None:  # gzip reports a bad header or checksum as a bare OSError
                raise _damaged(name, error) from error
            if error.filename is not None:
                raise  # an error with another file, from the body of the block
            raise _unreadable(name, error) from error


def _open(source: str | Path, stack: contextlib.ExitStack) -> io.BufferedReader:
    if str(source) == STDIN:
        return cast(io.BufferedReader, sys.stdin.buffer)
    if is_address(source):
        return stack.enter_context(_open_address(str(source)))
    try:
        file = Path(source).open("rb", buffering=BUFFER_BYTES)  # noqa: SIM115 (the stack closes it)
    except OSError as error:
        raise _unreadable(display_name(source), error) from error
    return stack.enter_context(cast(io.BufferedReader, file))


def is_address(source: str | Path) -> bool:
    """Whether a source is an address with a protocol, and not a path.

    >>> is_address("s3://papers/a.jsonl"), is_address("a:b.jsonl")
    (True, False)
    """
    return _PROTOCOL.match(str(source)) is not None


def is_read_once(source: str) -> bool:
    """Whether what is read of a source cannot be read again: of standard input, a pipe or a device.

    >>> is_read_once("-"), is_read_once("papers.jsonl")
    (True, False)
    """
    exists = os.path.exists(source)  # noqa: PTH110 (`Path.exists` raises in folders without permission)
    return source == STDIN or (exists and not is_folder(source) and not os.path.isfile(source))  # noqa: PTH113


def _open_address(address: str) -> io.BufferedReader:
    """The bytes at an address, by fsspec and the package that it needs for the protocol."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependencyError(
            f"{address}: an address needs the package fsspec; run: pip install 'qbe[huggingface]'"
        ) from error
    try:
        file = fsspec.open(address, "rb").open()
    except ImportError as error:  # its message says which package the protocol needs
        lacking = " ".join(str(error).split())
        raise MissingDependencyError(
            f"{address}: {lacking}; install that with pip, or download the file and give it"
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(
            f"cannot read {address}: {reason[:200]}; check the address, or download it and give the file"
        ) from error
    return io.BufferedReader(_Remote(file, address), BUFFER_BYTES)


class _Remote(io.RawIOBase):
    """A file of fsspec as a raw stream, whose errors are OSErrors without the name of another file."""

    def __init__(self, file: Any, address: str) -> None:
        self._file, self._address = file, address

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._file.read(len(buffer))
        except Exception as error:
            raise CorpusError(
                f"cannot read {self._address}: {' '.join(str(error).split())[:200]}; try again, or download "
                "it and give the file"
            ) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _unreadable(name: str, error: OSError) -> CorpusError:
    hint = "check the path"
    if isinstance(error, IsADirectoryError):
        hint = "give a file"
    elif isinstance(error, PermissionError):
        hint = "give a file that you may read"
    return CorpusError(f"cannot read {name}: {error.strerror}; {hint}")


def numbered_lines(stream: io.BufferedReader, name: str) -> Iterator[tuple[int, bytes]]:
    r"""Lines with their numbers from 1, line ends kept; a carriage return ends one, too.

    Raises CorpusError for a line of more than MAX_LINE_BYTES.

    >>> stream = io.BufferedReader(io.BytesIO(b"one\r\ntwo\rthree"))
    >>> list(numbered_lines(stream, "papers.jsonl"))
    [(1, b'one\r\n'), (2, b'two\r'), (3, b'three')]
    """
    number = 0
    for line in iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise CorpusError(
                f"{name}, line {number}: expected at most {MAX_LINE_BYTES >> 20} MiB a line, found more; "
                "write one paper a line"
            )
        if line.find(b"\r", 0, -2) < 0:
            yield number, line
            continue
        *pieces, line = _RETURN.split(line)
        for piece in pieces:
            yield number, piece
            number += 1
        yield number, line


def _damaged(name: str, error: Exception) -> CorpusError:
    return CorpusError(
        f"{name}: expected whole compressed data, found them truncated or corrupt ({error}); "
        "fetch the file again"
    )
