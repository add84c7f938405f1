"""Untrusted text made safe to show, and text files read line by line with errors that name the line."""

from __future__ import annotations

import codecs
import sys

from qbe.errors import FileFormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from qbe.util.files import StrPath

# Control characters, on which terminals act, and Unicode's line separators become spaces; marks that change
# the order in which letters are shown go.
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_HARMLESS: Mapping[int, str | None] = dict.fromkeys(_CONTROLS, " ") | dict.fromkeys(_DIRECTIONS)

_CONVERT = "convert the file to UTF-8"


def plain(value: object) -> str:
    r"""Sanitize untrusted text before printing or logging it.

    >>> plain("On \x1b[2Jfish\u2028and \u202estone"), plain(2019)
    ('On  [2Jfish and stone', '2019')
    """
    text = str(value)
    if text.isprintable():
        return text
    return text.encode(errors="replace").decode().translate(_HARMLESS)


def one_line(value: object) -> str:
    """Sanitize text and collapse white space, for messages of one line."""
    return " ".join(plain(value).split())


def some(names: Sequence[str], most: int = 3) -> str:
    """Join the first names, ``most`` of them, and dots in the place of more."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def read_text_lines(path: StrPath) -> Iterator[tuple[int, str]]:
    """Yield the numbered non-blank lines of UTF-8, UTF-16 with a mark, or gzip; ``-`` is standard input."""
    import gzip
    import zlib
    from contextlib import nullcontext
    from itertools import chain
    from pathlib import Path

    def bad(expected: str, remedy: str, place: str = "") -> FileFormatError:
        return FileFormatError(f"{path}{place}: expected {expected}; {remedy}")

    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else Path(path).open("rb") as opened:
            stream: Any = opened
            is_gzip = stream.peek(8).startswith(b"\x1f\x8b")
            lines = iter(gzip.GzipFile(fileobj=stream) if is_gzip else stream)
            first = next(lines, b"")
            if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                try:
                    first = b"".join((first, *lines)).decode("utf-16").encode()
                except UnicodeDecodeError as error:
                    expected = f"UTF-16 text, as its byte order mark says, found {error.reason}"
                    raise bad(expected, _CONVERT) from error
            first_lines = first.removeprefix(codecs.BOM_UTF8).splitlines(keepends=True)
            for number, line in enumerate(chain(first_lines, lines), start=1):
                problem = "a NUL character, as of UTF-16" if b"\0" in line else ""
                try:
                    text = line.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    problem = problem or f"byte 0x{line[error.start]:02x}"
                if problem:
                    raise bad(f"UTF-8 text, found {problem}", _CONVERT, f", line {number}")
                if text.strip():
                    yield number, text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        expected = f"a whole file of gzip, found a damaged one ({error})"
        raise bad(expected, "fetch or write it again") from error
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; check the path") from error


def read_fields(path: StrPath, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbered lines of `read_text_lines`, split."""
    return ((number, line.split(separator)) for number, line in read_text_lines(path))


def read_ids(path: StrPath) -> list[str]:
    """Read a text file with one id a line."""
    return [line.strip() for _, line in read_text_lines(path)]


def plain_number(text: str) -> str:
    """Return the text unless Python alone would read it as a number (non-ASCII digits, underscores)."""
    if not text.isascii() or "_" in text:
        raise ValueError(f"not a plain number: {text!r}")
    return text


def bad_line(path: StrPath, number: int, expected: str, value: str) -> FileFormatError:
    """Return the error for a malformed line, numbered from 1."""
    return FileFormatError(f"{path}, line {number}: expected {expected}, found {value[:80]!r}; mend the file")
