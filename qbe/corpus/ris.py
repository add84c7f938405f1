"""RIS, the tagged format of reference managers and publishers, one record from ``TY`` to ``ER``.

The tags are those of Research Information Systems' "RIS Format Specifications"; the package rispy reads them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus.authors import credits
from qbe.corpus.decode import decode_text
from qbe.corpus.entry import Entry
from qbe.corpus.fields import doi, present
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_title
from qbe.corpus.reading import Reading
from qbe.corpus.streams import numbered_lines
from qbe.errors import RecordError

MAX_RECORD_BYTES = 4 << 20
"""A longer record is an error instead of filling the memory; real ones are far shorter."""

_BOM = b"\xef\xbb\xbf"
_BEGIN, _END = b"TY  -", b"ER  -"
_FIRST_LINE = re.compile(r"^TY  -", re.MULTILINE)
_TAG = re.compile(r"[A-Z][A-Z0-9]  -")
_TITLE, _VENUE, _DATES = ("TI", "T1", "CT"), ("JF", "JO", "T2"), ("PY", "Y1", "DA")
_LISTS = ("ID", "DO", "UR", "AB", "N2", "AU", "A1", "BT", *_TITLE, *_VENUE, *_DATES)
_DATE = re.compile(r"(\d{4})(?!\d)(?:[/-](\d{1,2})(?!\d)(?:[/-](\d{1,2})(?!\d))?)?", re.ASCII)


def recognizes(head: Head) -> bool:
    """Whether a line begins a record of RIS."""
    return not head.text.startswith(("{", "[", "<")) and _FIRST_LINE.search(head.text) is not None


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    r"""The records of a file; ``paper_id`` is None where there is no ID.

    >>> text = b"TY  - JOUR\nTI  - On fish\nAU  - Lee, Ann\nPY  - 2019/05//\nAB  - Fish\nswim.\nER  - \n"
    >>> [entry] = read(io.BufferedReader(io.BytesIO(text)), "refs.ris", Reading())
    >>> entry.record["paper_id"], entry.record["abstract"], entry.record["metadata"]
    (None, 'Fish swim.', {'authors': ['Ann Lee'], 'year': 2019, 'date': '2019-05'})
    """
    del reading
    for where, data in _records(stream, name):
        try:
            yield Entry(where, data if isinstance(data, RecordError) else _record(data, where))
        except RecordError as error:
            yield Entry(where, error)


def date_of(text: str) -> str:
    """The date as YYYY-MM-DD, as much of it as is there; '' without a year.

    >>> date_of("2019/05//Spring"), date_of("2019-5-7T12:00:00"), date_of("May 2019")
    ('2019-05', '2019-05-07', '')
    """
    match = _DATE.match(text)
    if match is None:
        return ""
    parts = [match[1]]
    for part, last in ((match[2], 12), (match[3], 31)):
        if not part or not 1 <= int(part) <= last:
            break
        parts.append(f"{int(part):02}")
    return "-".join(parts)


def _records(stream: io.BufferedReader, name: str) -> Iterator[tuple[str, bytes | RecordError]]:
    """Each record with its place; what stands between records is left out."""
    where, size, lines = name, 0, list[bytes]()
    for number, line in numbered_lines(stream, name):
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.startswith(_BEGIN):
            if lines:
                yield where, _broken(where, "the next record before it")
            where, size, lines = f"{name}, line {number}", len(line), [line]
        elif lines:
            size += len(line)
            if size <= MAX_RECORD_BYTES:
                lines.append(line)
            if line.startswith(_END):
                is_whole = size <= MAX_RECORD_BYTES
                actual = f"more than {MAX_RECORD_BYTES >> 20} MiB before it"
                yield where, b"".join(lines) if is_whole else _broken(where, actual)
                lines = []
    if lines:
        yield where, _broken(where, "the end of the file before it")


def _broken(where: str, actual: str) -> RecordError:
    return RecordError(
        f"{where}: expected 'ER  -' at the end of the record, found {actual}; mend or remove the record",
        "a broken entry",
    )


def _record(data: bytes, where: str) -> dict[str, Any]:
    """The record of RIS's; raises RecordError where it has no title, or is not UTF-8."""
    values = _parsed(decode_text(data, where))
    book, title = _first(values, "BT"), _first(values, *_TITLE)
    if not (title or book):
        raise RecordError(
            f"{where}: expected a title (TI), found none; add it or remove the record", "no title"
        )
    dates = [date for name in _DATES for text in values.get(name, ()) if (date := date_of(text))]
    year = dates[0][:4] if dates else ""
    date = max((each for each in dates if each[:4] == year), key=len, default="")
    metadata = {
        **credits(clean_title(each) for each in values.get("AU") or values.get("A1") or ()),
        "year": int(year) if year else None,
        "date": date if len(date) > len("YYYY") else "",
        "venue": clean_title(_first(values, *_VENUE) or (book if title else "")),
        "doi": doi(_first(values, "DO")),
        "url": _first(values, "UR"),
    }
    return {
        "paper_id": _first(values, "ID") or None,
        "title": clean_title(title or book),
        "abstract": clean_abstract(" ".join(values.get("AB") or values.get("N2") or ())) or None,
        "metadata": present(metadata),
    }


def _parsed(text: str) -> dict[str, list[str]]:
    """The values of each tag that is needed."""
    from rispy import RisParser

    lines: list[list[str]] = []
    for line in text.split("\n"):
        if _TAG.match(line):
            lines.append([f"{line[:5]} {line[5:].strip()}"])
        elif lines:  # rispy would add a continued line to the first value of a tag, or as another one
            lines[-1].append(line.strip())
    parser = RisParser(
        mapping={tag: tag for tag in ("TY", *_LISTS)},
        list_tags=list(_LISTS),
        delimiter_tags_mapping={},
        skip_unknown_tags=True,
    )
    [record] = parser.parse("\n".join(" ".join(filter(None, parts)) for parts in lines))
    return {tag: [value for value in record.get(tag, ()) if value] for tag in _LISTS}


def _first(values: Mapping[str, list[str]], *tags: str) -> str:
    return next((values[tag][0] for tag in tags if values[tag]), "")
