"""Tables of papers with a header row: CSV with commas, semicolons or bars, and TSV.

Columns are those that `qbe.corpus.reading.Reading` names, or have usual names, as in the exports of reference
managers and databases. What some of these write before the header is left out, and said so.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from qbe.corpus.columns import find_columns, to_record
from qbe.corpus.decode import decode_text
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading, converted
from qbe.corpus.streams import numbered_lines
from qbe.errors import CorpusError, RecordError

MAX_FIELD_CHARS = 4 << 20
"""A longer field is an error instead of filling the memory, as where a quotation mark is missing."""

_TAB = "\t"
_DELIMITERS = (",", _TAB, ";", "|")
_DELIMITER_OF = {".csv": None, ".tsv": _TAB, ".tab": _TAB}
_SEPARATOR = re.compile(r"\"?sep=([^\"\w])\"?\s*", re.IGNORECASE)
"""The line that Excel writes before a header."""

_QUOTED = re.compile(r'"[^"]*"')
_MOST_CHARS = 40
_MOST_LINES_BEFORE = 20
_MOST_HEADER_LINES = 100


def recognizes(head: Head) -> bool:
    """Whether the suffix is that of a table, or a header names columns for title and abstract."""
    if head.text.startswith(("{", "[", "<", "@", "PAR1")):
        return False
    lines = head.text.split("\n", _MOST_LINES_BEFORE)[:_MOST_LINES_BEFORE]
    return head.suffix in _DELIMITER_OF or _find_header(lines, Reading(), head) is not None


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    r"""The rows of a table; ``paper_id`` is None without a column for ids.

    Raises CorpusError where the header has no columns for title and abstract.

    >>> data = b'PMID,Title,Abstract\n7,On fish,"Fish\nswim."\n8,On birds\n'
    >>> rows = read(io.BufferedReader(io.BytesIO(data)), "papers.csv", Reading())
    >>> next(rows).record
    {'paper_id': '7', 'title': 'On fish', 'abstract': 'Fish swim.', 'metadata': {}}
    >>> print(next(rows).record)
    papers.csv, line 4: expected 3 fields, found 2; put fields with commas or line breaks in quotation marks
    """
    lines, head = _Lines(stream, name), Head(name, b"")
    first = lines.ahead(_MOST_HEADER_LINES)
    before, delimiter = _find_header(first[:_MOST_LINES_BEFORE], reading, head) or _first_line(first, head)
    for text in first[:before]:
        next(lines)
        if text.strip() and not _SEPARATOR.fullmatch(text):
            where = f"{name}, line {lines.number}"
            message = f"{where}: expected the header, found {text.strip()[:_MOST_CHARS]!a}; left it out"
            yield Entry(where, RecordError(message, "not a paper", is_fault=False))
    rows = _rows(lines, name, delimiter)
    _, header = next(rows, (name, []))
    if isinstance(header, RecordError):
        raise CorpusError(str(header))
    columns = find_columns(header, reading.columns, name, reading.keep_without_abstract)
    needed = max(columns.positions["title"], columns.positions.get("abstract", 0))

    def record(row: list[str], where: str) -> dict[str, Any]:
        if len(row) == len(header) - 1 > needed:
            row.append("")  # as of programs that leave out an empty field at the end
        elif len(row) != len(header):
            raise RecordError(
                f"{where}: expected {len(header)} fields, found {len(row)}; put fields with commas or line "
                "breaks in quotation marks",
                "a row with another number of fields",
            )
        values = {field: row[position] for field, position in columns.positions.items()}
        return to_record(columns, values, where)

    yield from converted(rows, record)


class _Lines:
    """The lines of a stream as text; ``error`` says what is wrong where one was not UTF-8."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self.number = 0  # of the last one
        self.error: RecordError | None = None
        self.row: list[tuple[int, bytes]] = []
        """The lines since it was emptied."""

        self._name = name
        self._lines = numbered_lines(stream, name)
        self._ahead: deque[tuple[int, bytes]] = deque()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        numbered = self._ahead.popleft() if self._ahead else next(self._lines)
        self.row.append(numbered)
        self.number, line = numbered
        try:
            return decode_text(line, f"{self._name}, line {self.number}")
        except RecordError as error:
            self.error = self.error or error
            return line.decode(errors="replace")

    def back(self, first: int) -> None:
        """Go back to a line of the row."""
        self._ahead.extendleft(reversed(self.row[first:]))
        del self.row[first:]
        self.number = self.row[-1][0] if self.row else self.number - 1

    def ahead(self, count: int) -> list[str]:
        """The next lines, which stay."""
        self._ahead.extend(islice(self._lines, count - len(self._ahead)))
        return [line.decode(errors="replace") for _, line in self._ahead]


def _rows(lines: _Lines, name: str, delimiter: str) -> Iterator[tuple[str, list[str] | RecordError]]:
    """The rows with their places, the header first; blank ones are left out, and blanks beyond its width."""
    options: Any = {"delimiter": delimiter, "skipinitialspace": True, "strict": True}
    reader, width = csv.reader(lines, **options), 0
    while True:
        lines.row.clear()
        where = f"{name}, line {lines.number + 1}"
        row: list[str] | RecordError
        try:
            row = (_tabbed(lines, width) if delimiter == _TAB and width else None) or _next_row(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reader, problem = csv.reader(lines, **options), " ".join(str(error).split())
            row = RecordError(
                f"{where}: expected quotation marks in pairs around fields, and doubled within them, found "
                f"malformed text ({problem}); mend or remove the row",
                "a malformed row",
            )
        if width and isinstance(row, list) and len(row) > width and not any(row[width:]):
            del row[width:]
        # Of a row over several lines that is none the first is one, so that the others are not lost.
        if len(lines.row) > 1 and width and (isinstance(row, RecordError) or abs(len(row) - width) > 1):
            lines.back(1)
        if lines.error is not None:
            row, lines.error = lines.error, None
        if isinstance(row, RecordError) or any(row):
            width = width or (len(row) if isinstance(row, list) else 0)
            yield where, row


def _tabbed(lines: _Lines, width: int) -> list[str] | None:
    """The next row if it is one line with so many fields; many tables with tabs have no quoted fields."""
    row = next(lines).rstrip("\r\n").split(_TAB)
    if len(row) < width or any(row[width:]) or (row[-1].startswith('"') and not row[-1].endswith('"')):
        lines.back(0)
        return None
    return [each[1:-1].replace('""', '"') if each[:1] == each[-1:] == '"' else each for each in row]


def _find_header(lines: Sequence[str], reading: Reading, head: Head) -> tuple[int, str] | None:
    """How many lines stand before the header, and what separates its columns; None where none names them."""
    given = ""
    for before, line in enumerate(lines):
        if separator := _SEPARATOR.fullmatch(line):
            given = separator[1]
            continue
        delimiter = given or _delimiter(head, line)
        try:
            header = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
            find_columns(header, reading.columns, head.name, reading.keep_without_abstract)
        except (CorpusError, csv.Error):
            continue
        return before, delimiter
    return None


def _first_line(lines: Sequence[str], head: Head) -> tuple[int, str]:
    """The same for a header that is the first line, and goes on until no quoted field is open."""
    header: list[str] = []
    for line in lines:
        header.append(line)
        if "".join(header).count('"') % 2 == 0 and not line.isspace():
            break
    return 0, _delimiter(head, "".join(header))


def _delimiter(head: Head, header: str) -> str:
    """What separates the columns, by the suffix, else what occurs most often in the header."""
    unquoted = _QUOTED.sub("", header)
    return _DELIMITER_OF.get(head.suffix) or max(_DELIMITERS, key=unquoted.count)


def _next_row(reader: Iterator[list[str]]) -> list[str]:
    """The next row; the limit of fields is that of the whole process, so it is changed only meanwhile."""
    before = csv.field_size_limit(MAX_FIELD_CHARS)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(before)
