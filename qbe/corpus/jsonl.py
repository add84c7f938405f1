"""Papers in JSON: one object a line (or one object of all, see `qbe.corpus.jsonmap`)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from qbe.corpus.decode import decode_record, decode_text
from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.jsonmap import is_mapping, read_mapping
from qbe.corpus.reading import Reading
from qbe.corpus.record import Splitter, paper_to_record, parse_paper
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.errors import RecordError
from qbe.types import Paper

_BOM = b"\xef\xbb\xbf"


def read_records(source: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records with their places (``{file}, line {number}``), unchanged; blank lines are skipped.

    Raises CorpusError for a source that cannot be read, and for a line that is not UTF-8, not a JSON
    object, or longer than MAX_LINE_BYTES.

    >>> _ = Path("papers.jsonl").write_text('{"paper_id": 7, "title": "On fish"}')
    >>> list(read_records("papers.jsonl"))
    [('papers.jsonl, line 1', {'paper_id': 7, 'title': 'On fish'})]
    """
    with open_source(source) as stream:
        for where, record in read_entries(stream, display_name(source)):
            if isinstance(record, RecordError):
                raise record
            yield where, dict(record)


def recognizes(head: Head) -> bool:
    """Whether the first record is one of qbe's own."""
    return head.has("paper_id", "title", "abstract")


def read_entries(stream: io.BufferedReader, name: str, reading: Reading | None = None) -> Iterator[Entry]:
    """The records of a stream (a `qbe.corpus.formats.Reader`); blank lines are skipped."""
    del reading
    if is_mapping(stream):
        for where, record in read_mapping(stream, name):
            yield Entry(where, record)
        return
    yield from json_lines(stream, name)


def json_lines(stream: io.BufferedReader, name: str) -> Iterator[Entry]:
    r"""The JSON objects of a stream, one a line, unchanged; blank lines are skipped.

    >>> [entry.where for entry in json_lines(io.BufferedReader(io.BytesIO(b'{}\n\n{}')), "papers.jsonl")]
    ['papers.jsonl, line 1', 'papers.jsonl, line 3']
    """
    for number, line in numbered_lines(stream, name):
        where = f"{name}, line {number}"
        try:
            text = decode_text(line.removeprefix(_BOM) if number == 1 else line, where).rstrip()
            record = decode_record(text, where, "one JSON object a line") if text else None
        except RecordError as error:
            yield Entry(where, error)
            continue
        if record is not None:
            yield Entry(where, record)


def read_jsonl(source: str | Path, split: Splitter | None = None) -> Iterator[Paper]:
    """Papers of a file (plain, .gz, .xz, .zst, .zip) or of standard input (``-``), as a stream.

    ``split`` splits abstracts that are one string. Ids are not compared with each other: see
    `qbe.corpus.read_corpus`. Raises CorpusError with the file and line for anything invalid.

    >>> _ = Path("papers.jsonl").write_text('{"paper_id": 7, "title": "On fish", "abstract": ["We count."]}')
    >>> [(paper.paper_id, paper.abstract) for paper in read_jsonl("papers.jsonl")]
    [('7', 'We count.')]
    """
    for where, record in read_records(source):
        yield parse_paper(record, where, split)


def write_jsonl(papers: Iterable[Paper], stream: IO[bytes]) -> int:
    """Write papers in the form `read_jsonl` reads, UTF-8, and return their number.

    >>> paper = parse_paper({"paper_id": 7, "title": "On fish", "abstract": ["We count."]}, "a record")
    >>> with Path("papers.jsonl").open("wb") as stream:
    ...     write_jsonl([paper], stream)
    1
    """
    count = 0
    for count, paper in enumerate(papers, start=1):  # noqa: B007 (the last count is the result)
        stream.write(dump_record(paper_to_record(paper)))
    return count


def dump_record(record: dict[str, Any]) -> bytes:
    """One line of JSON, with its line end.

    >>> print(dump_record({"paper_id": "1", "title": "Über"}).decode(), end="")
    {"paper_id": "1", "title": "Über"}
    """
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
