"""Bytes of a source: a file, plain or compressed, standard input, or an address that fsspec opens; as UTF-8.

The compression follows from the file's suffix (.gz, .xz, .zst, .zip), else from its first bytes, so
that standard input may be compressed too. A zip archive must hold a single file. Text in another encoding
becomes UTF-8 where its encoding can be told.
"""

from __future__ import annotations

import codecs
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

from qbe.corpus.head import kind_of_archive, not_recognized
from qbe.errors import CorpusError, MissingDependencyError
from qbe.util.files import is_address

STDIN = "-"
MAX_LINE_BYTES = 64 << 20
"""A longer line ends in an error instead of filling the memory; real records are far shorter."""

_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PK\3\4": ".zip"}
_PIECE_BYTES = 1 << 13
_ZSTANDARD_BYTES = 1 << 10
"""A block of 4 bytes may become 128 KiB: of so little input at a time the output is at most 32 MiB."""

_RETURN = re.compile(rb"(?<=\r)(?!\n)(?=.)", re.DOTALL)
_BUFFER_BYTES = 1 << 20

WESTERN = "cp1252"
"""The encoding of Windows, with Latin-1 the only one of 8 bits that is read."""

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_XML_ENCODING = re.compile(rb"(<\?xml[^>]{0,100}?)\s+encoding\s*=\s*[\"'][^\"']*[\"']")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_FOREIGN = re.compile(
    r"(?<=[^\W\d_])[À-ÖØ-ÞŒŠŽŸ](?=[a-z])|\b(?![àèéóôåæøµ¹²³ªºÅ])[^\W\d_a-zA-Z]\b"
    r"|(?<=[a-zß-öø-ÿ])(?:[À-ÖØ-ÞŒŠŽŸ](?![A-ZÀ-ÖØ-Þ])|[¹²³](?=[a-z]))|[^\W\d_a-zA-Z]{3}|[þðýÞÐÝ]|[øì]\w{0,8}[áíìòù]"
    r"|(?<=[^\W\d_])[^\w\s\x00-\x7f\u00ad\u00b7\u2013\u2014\u2019](?=[^\W\d_])|[\u0192\u02c6\u02dc\u2020\u2021]"
    r"|(?<=[a-z])(?<!\b[a-z])(?<!\b[Qq]u)\u2019(?=[a-z])(?!(?:s|t|re|ve|ll|d|m)\b)"
)
"""What texts in WESTERN hardly have, and texts in other encodings often when they are read so: capitals or
signs within words, three letters with accents in a row, rare letters and signs.
"""


class _DamagedError(Exception):
    """Compressed data that is truncated or corrupt; the message says what the decompressor said."""


def _decompressed(
    raw: io.BufferedReader, source: str | Path, name: str, stack: contextlib.ExitStack
) -> io.BufferedReader:
    """The bytes of a source, decompressed by its suffix, else by its first bytes.

    Raises _DamagedError, and what the decompressors raise, also while the stream is read.
    """
    stream: Any
    suffix, start = Path(source).suffix.lower(), raw.peek(8)[:8]
    if suffix not in _MAGIC.values():
        suffix = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
    match suffix:
        case ".gz":
            import gzip

            stream = gzip.GzipFile(fileobj=raw)
        case ".xz":
            stream = lzma.LZMAFile(raw)  # noqa: SIM115 (the stack closes it)
        case ".zst":
            return stack.enter_context(_stream_of(_of_zstandard(raw, name)))
        case ".zip":
            stream = _zip_member(raw, name)
        case _:
            return raw
    # The buffer turns the decompressors' slow readline into a fast one.
    return stack.enter_context(io.BufferedReader(stream, _BUFFER_BYTES))


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
        here = self._size if self._stream is None or self._stream.closed else self._stream.tell()
        return min(1.0, (self._before + here) / self._total)


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
            yield _as_utf8(_decompressed(raw, source, name, stack), name)
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
        return stack.enter_context(_stream_of(_of_address(str(source))))
    try:
        file = Path(source).open("rb", buffering=_BUFFER_BYTES)  # noqa: SIM115 (the stack closes it)
    except OSError as error:
        raise _unreadable(display_name(source), error) from error
    return stack.enter_context(cast(io.BufferedReader, file))


def is_read_once(source: str) -> bool:
    """Whether what is read of a source cannot be read again: of standard input, a pipe or a device.

    >>> is_read_once("-"), is_read_once("papers.jsonl")
    (True, False)
    """
    exists = os.path.exists(source)  # noqa: PTH110 (`Path.exists` raises in folders without permission)
    return source == STDIN or (exists and not is_folder(source) and not os.path.isfile(source))  # noqa: PTH113


def open_address(address: str) -> IO[bytes]:
    """The file at an address, opened by fsspec and the package that it needs for the protocol.

    Raises MissingDependencyError where one of them is missing, and whatever fsspec does.
    """
    try:
        import fsspec

        file: IO[bytes] = fsspec.open(address, "rb").open()
    except ImportError as error:  # of fsspec, or its message says which package the protocol needs
        lacking = " ".join(str(error).split())
        raise MissingDependencyError(
            f"{address}: {lacking}; install it with pip (fsspec: 'qbe[huggingface]'), or download the file"
        ) from error
    return file


def _of_address(address: str) -> Iterator[bytes]:
    """The bytes at an address."""
    try:
        with open_address(address) as file:
            while data := file.read(_BUFFER_BYTES):
                yield data
    except MissingDependencyError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(
            f"cannot read {address}: {reason[:200]}; check the address, or download it and give the file"
        ) from error


def _unreadable(name: str, error: OSError) -> CorpusError:
    hints = {IsADirectoryError: "give a file", PermissionError: "give a file that you may read"}
    return CorpusError(f"cannot read {name}: {error.strerror}; {hints.get(type(error), 'check the path')}")


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


def _as_utf8(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    """A stream of UTF-16 or UTF-32 as UTF-8; any other as it is, without the byte order mark of UTF-8."""
    sample = stream.peek(4096)[:4096]
    if sample.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
        return stream
    encoding = next((each for mark, each in _MARKS.items() if sample.startswith(mark)), "")
    encoding = encoding or _utf16_without_mark(sample)
    if not encoding:
        return stream
    decoder = codecs.getincrementaldecoder(encoding)()

    def utf8() -> Iterator[bytes]:
        data = sample
        while data:
            data = stream.read1(1 << 16)
            try:
                text = decoder.decode(data, final=not data).removeprefix("\ufeff").encode()
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{name}: expected {encoding.upper()} text, found other bytes ({error.reason}); convert "
                    "the file to UTF-8"
                ) from None
            yield _XML_ENCODING.sub(rb"\1", text)

    return _stream_of(utf8())


def from_western(stream: io.BufferedReader) -> tuple[io.BufferedReader, bool]:
    r"""A stream of text as UTF-8, and whether lines of it are in WESTERN; others stay as they are.

    >>> stream, is_western = from_western(io.BufferedReader(io.BytesIO(b"Kurt G\xf6del\n")))
    >>> stream.read().decode(), is_western
    ('Kurt Gödel\n', True)
    """
    sample = stream.peek(_BUFFER_BYTES)[:_BUFFER_BYTES]
    lines = sample.splitlines()
    if len(sample) == _BUFFER_BYTES:
        lines.pop()  # it may be cut
    try:
        text = b"\n".join(line for line in lines if not _is_utf8(line)).decode(WESTERN)
    except UnicodeDecodeError:
        return stream, False
    if not text or _FOREIGN.search(text):
        return stream, False
    others = iter(lambda: stream.readline(1 << 20), b"")
    utf8 = (line if _is_utf8(line) else line.decode(WESTERN, "replace").encode() for line in others)
    return _stream_of(utf8), True


def _utf16_without_mark(sample: bytes) -> str:
    """The encoding of bytes in which every other one is often zero; '' for others."""
    zeros = sample[0::2].count(0), sample[1::2].count(0)
    if max(zeros) <= 8 * min(zeros) or max(zeros) < max(3, len(sample) / 10):
        return ""
    encoding = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return ""
    return "" if _CONTROL.search(text) else encoding


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _stream_of(pieces: Iterator[bytes]) -> io.BufferedReader:
    """A stream of bytes that are given piece by piece."""
    return io.BufferedReader(_Pieces(pieces), _BUFFER_BYTES)


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
