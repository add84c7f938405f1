"""Text files of fields, read and written line by line, with errors that name the line."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from qbe.errors import FileFormatError
from qbe.util.files import StrPath, atomic_file

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_GZIP = b"\x1f\x8b"
_COMPRESSED = {_GZIP: "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\0": "xz", b"BZh91AY&SY": "bzip2"}
"""Formats by the bytes that their files begin with."""


def write_lines(path: StrPath, lines: Iterable[str]) -> None:
    """Write lines as they come: the judgements of a large collection are never one string."""
    with atomic_file(path) as stream:
        stream.writelines(line.encode() for line in lines)


def read_text_lines(path: StrPath) -> Iterator[tuple[int, str]]:
    r"""Numbered lines of a text file (``-``: standard input), without line ends: UTF-8 with or without a byte
    order mark, or UTF-16 with one; compressed by gzip or not. Blank lines are passed over.

    Raises FileFormatError for a file that cannot be read, is damaged or compressed otherwise (through a pipe
    by gzip, too), and, with the line, for one in another encoding.

    >>> _ = Path("run.trec").write_bytes("q Q0 d 1 2.5 t\n".encode("utf-16"))
    >>> list(read_text_lines("run.trec"))
    [(1, 'q Q0 d 1 2.5 t')]
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else Path(path).open("rb") as stream:
            first, rest = stream.readline(), iter(stream)
            if first.startswith(_GZIP) and stream.seekable():
                stream.seek(0)
                rest = _decompressed(stream, path)
                first = next(rest, b"")
            for magic, compressed in _COMPRESSED.items():
                if first.startswith(magic):
                    raise FileFormatError(
                        f"{path}: expected a text file, found one that is compressed ({compressed}); "
                        "decompress it"
                    )
            if first.startswith(_UTF_16):
                first += b"".join(rest)
            lines = _without_mark(first, str(path)).splitlines(keepends=True)
            for number, line in enumerate(chain(lines, rest), start=1):
                problem = "a NUL character, as of UTF-16" if b"\0" in line else ""
                try:
                    text = line.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    problem = problem or f"byte 0x{line[error.start]:02x}"
                if problem:
                    raise FileFormatError(
                        f"{path}, line {number}: expected UTF-8 text, found {problem}; convert the file to "
                        "UTF-8"
                    )
                if text.strip():
                    yield number, text
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; check the path") from error


def _decompressed(stream: BinaryIO, path: StrPath) -> Iterator[bytes]:
    """The lines of a file that is compressed by gzip; raises FileFormatError for a damaged one."""
    import gzip
    import zlib

    try:
        yield from gzip.GzipFile(fileobj=stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileFormatError(
            f"{path}: expected a whole file of gzip, found a damaged one ({error}); fetch or write it again"
        ) from error


def _without_mark(data: bytes, name: str) -> bytes:
    """The beginning of a text, all of one in UTF-16, as UTF-8 without a byte order mark; raises
    FileFormatError for such a mark before anything else.
    """
    if not data.startswith(_UTF_16):
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{name}: expected UTF-16 text, as its byte order mark says, found {error.reason}; convert the "
            "file to UTF-8"
        ) from error


def read_fields(path: StrPath, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """The lines of `read_text_lines`, split; raises what that does."""
    return ((number, line.split(separator)) for number, line in read_text_lines(path))


def read_ids(path: StrPath) -> list[str]:
    r"""The ids of a text file with an id a line, without the spaces around them; raises what
    `read_text_lines` does.

    >>> _ = Path("some.ids").write_text("s001 \n\n s002")
    >>> read_ids("some.ids")
    ['s001', 's002']
    """
    return [line.strip() for _, line in read_text_lines(path)]


def plain_number(text: str) -> str:
    """A text that is to be read as a number; raises ValueError for what Python alone reads as one: digits
    outside ASCII, and underscores between digits.

    >>> float(plain_number("-2.5e3"))
    -2500.0
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"not a plain number: {text!r}")
    return text


def bad_line(path: StrPath, number: int, expected: str, value: str) -> FileFormatError:
    """The error for a line (from 1) that is not as expected, with the first 80 characters of what it holds.

    >>> print(bad_line("run.trec", 3, "a number as score", "high"))
    run.trec, line 3: expected a number as score, found 'high'; mend the file
    """
    return FileFormatError(f"{path}, line {number}: expected {expected}, found {value[:80]!r}; mend the file")
