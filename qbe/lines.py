"""Text files of fields, read and written line by line, with errors that name the line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from qbe.errors import FileFormatError, InputError, file_error
from qbe.files import StrPath, atomic_file


def write_lines(path: StrPath, lines: Iterable[str]) -> None:
    """Write lines as they come: the judgements of a large collection are never one string."""
    with atomic_file(path) as stream:
        stream.writelines(line.encode() for line in lines)


def read_fields(path: StrPath, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines of a UTF-8 file, split; blank lines are passed over."""
    try:
        with Path(path).open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    text = line.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise FileFormatError(
                        f"{path}, line {number}: expected UTF-8 text, found byte 0x{line[error.start]:02x}; "
                        "convert the file to UTF-8"
                    ) from error
                if text.strip():
                    yield number, text.split(separator)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; check the path") from error


def read_ids(path: StrPath) -> list[str]:
    r"""The ids of a text file (UTF-8) with an id a line, without the spaces around them; blank lines are
    passed over.

    Raises InputError for a file that cannot be read or is not UTF-8.

    >>> _ = Path("some.ids").write_text("s001 \n\n s002")
    >>> read_ids("some.ids")
    ['s001', 's002']
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise file_error(error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected UTF-8 text with an id a line, found {error.reason}") from error
    return [paper_id for line in lines if (paper_id := line.strip())]


def bad_line(path: StrPath, number: int, expected: str, value: str) -> FileFormatError:
    """The error for a line (from 1) that is not as expected, with the first 80 characters of what it holds.

    >>> print(bad_line("run.trec", 3, "a number as score", "high"))
    run.trec, line 3: expected a number as score, found 'high'; mend the file
    """
    return FileFormatError(f"{path}, line {number}: expected {expected}, found {value[:80]!r}; mend the file")
