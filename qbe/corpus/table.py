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

from qbe.corpus.columns import find_columns, normal, to_record
from qbe.corpus.decode import decode_text
from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.reading import Reading
from qbe.corpus.streams import MAX_LINE_BYTES, numbered_lines
from qbe.errors import CorpusError, RecordError

_BOM = b"\xef\xbb\xbf"
_TAB = "\t"
_SUFFIXES = {".csv": "", ".tsv": _TAB, ".tab": _TAB}
_DELIMITERS = (",", _TAB, ";")
_QUOTED = re.compile(r'"[^"]*"')
_MOST_HEADER_LINES = 100


def recognizes(head: Head) -> bool:
    """Whether the first line names columns for title and abstract; if not, whether the suffix says so."""
    if head.text.startswith(("{", "[", "<", "@", "PAR1")):
        return False
    line = head.text.partition("\n")[0]
    names = {normal(column) for column in line.split(_delimiter(head.suffix, line))}
    return {"title", "abstract"} <= names or head.suffix in _SUFFIXES


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    r"""The rows of a table; those of one without a column for ids are called ``row-N``.

    Raises CorpusError where the header has no columns for title and abstract.

    >>> data = b'PMID,Title,Abstract\n7,On fish,"Fish\nswim."\n8,On birds\n'
    >>> rows = read(io.BufferedReader(io.BytesIO(data)), "papers.csv", Reading())
    >>> next(rows).record
    {'paper_id': '7', 'title': 'On fish', 'abstract': 'Fish swim.', 'metadata': {}}
    >>> print(next(rows).record)
    papers.csv, line 4: expected 3 fields, found 2; put fields with delimiters or line breaks in quotation marks
    """
    lines = _Lines(stream, name)
    first = _header_line(lines)
    delimiter = _delimiter(Head(name, b"").suffix, first)
    rows = _Rows(lines, first, delimiter)
    header = next(rows, [])
    problem = rows.error
    if isinstance(problem, RecordError):
        raise CorpusError(str(problem))
    columns = find_columns(header, reading.columns, name)
    ...
