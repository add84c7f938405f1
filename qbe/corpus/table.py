"""Tables of papers with a header row: CSV with commas or semicolons, and TSV.

Columns are those that `qbe.corpus.reading.Reading` names, or have usual names, as in the exports of Zotero
and Scopus.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain

from qbe.corpus.columns import find_columns, to_record
from qbe.corpus.decode import decode_text
from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.reading import Reading
from qbe.corpus.streams import numbered_lines
from qbe.errors import CorpusError, RecordError

MAX_FIELD_CHARS = 4 << 20
"""A longer field is an error instead of filling the memory, as where a quotation mark is missing."""

_BOM = b"\xef\xbb\xbf"
_TAB = "\t"
_DELIMITERS = (",", _TAB, ";")
_DELIMITER_OF = {".csv": None, ".tsv": _TAB, ".tab": _TAB}
_QUOTED = re.compile(r'"[^"]*"')
_MOST_HEADER_LINES = 100


def recognizes(head: Head) -> bool:
    """Whether the suffix is that of a table, or the first line names columns for title and abstract."""
    if head.text.startswith(("{", "[", "<", "@", "PAR1")):
        return False
    line = head.text.partition("\n")[0]
    try:
        find_columns(line.split(_delimiter(head, line)), {}, head.name)
    except CorpusError:
        return head.suffix in _DELIMITER_OF
    return True


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
    rows = _rows(stream, name)
    where, header = next(rows, (name, []))
    if isinstance(header, RecordError):
        raise CorpusError(str(header))
    columns = find_columns(header, reading.columns, name)
    for where, row in rows:
        try:
            if isinstance(row, RecordError):
                raise row
            if len(row) != len(header):
                raise _other_width(where, len(header), len(row))
            values = {field: row[position] for field, position in columns.positions.items()}
            yield Entry(where, to_record(columns, values, where))
        except RecordError as error:
            yield Entry(where, error)


class _Lines:
    """The lines of a stream as text.

    ``text`` is the last one, ``error`` what is wrong where one was not UTF-8.
    """

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self.text = ""
        self.error: RecordError | None = None
        self._name = name
        self._lines = numbered_lines(stream, name)

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        if number == 1:
            line = line.removeprefix(_BOM)
        try:
            self.text = decode_text(line, f"{self._name}, line {number}")
        except RecordError as error:
            self.error = self.error or error
            self.text = line.decode(errors="replace")
        return self.text


def _rows(stream: io.BufferedReader, name: str) -> Iterator[tuple[str, list[str] | RecordError]]:
    """The rows with their places, the header first; blank ones are left out."""
    lines = _Lines(stream, name)
    header = _header_lines(lines)
    delimiter = _delimiter(Head(name, b""), "".join(header))
    reader = csv.reader(chain(header, lines), delimiter=delimiter, skipinitialspace=True, strict=True)
    number, width = 1, 0
    while True:
        where = f"{name}, line {number}"
        row: list[str] | RecordError
        try:
            row = _next_row(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = lines.text.rstrip("\r\n").split(_TAB)  # many tables with tabs have no quoted fields
            if delimiter != _TAB or number != reader.line_num or len(row) != width:
                row = _malformed(where, error)
        if lines.error is not None:
            row, lines.error = lines.error, None
        if isinstance(row, RecordError) or any(row):
            width = width or (len(row) if isinstance(row, list) else 0)
            yield where, row
        number = reader.line_num + 1


def _header_lines(lines: _Lines) -> list[str]:
    """The first lines, up to one after which no quoted field is open."""
    header: list[str] = []
    marks = 0
    for line in lines:
        header.append(line)
        marks += line.count('"')
        if (marks % 2 == 0 and not line.isspace()) or len(header) == _MOST_HEADER_LINES:
            break
    return header


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


def _malformed(where: str, error: csv.Error) -> RecordError:
    return RecordError(
        f"{where}: expected quotation marks in pairs around fields, and doubled within them, found malformed "
        f"text ({' '.join(str(error).split())}); mend or remove the row",
        "a malformed row",
    )


def _other_width(where: str, expected: int, actual: int) -> RecordError:
    return RecordError(
        f"{where}: expected {expected} fields, found {actual}; put fields with commas or line breaks in "
        "quotation marks",
        "a row with another number of fields",
    )
