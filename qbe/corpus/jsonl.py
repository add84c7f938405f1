"""Papers in JSON: one object a line, an array or an object of objects.

Records are qbe's own (`qbe.corpus.record`), or have no ``paper_id``; what they tell under usual names, as a
table has (`qbe.corpus.columns`), counts in both.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from qbe.corpus import columns
from qbe.corpus.decode import json_objects, object_items
from qbe.corpus.fields import present
from qbe.corpus.head import Head, head_of
from qbe.corpus.reading import Entry, Reading, converted
from qbe.corpus.record import FIELDS, OFFSETS, Splitter, dump_record, paper_to_record, parse_paper
from qbe.corpus.streams import display_name, open_source
from qbe.errors import CorpusError, RecordError
from qbe.types import Paper

_MAPPING = re.compile(r'\{\s*"([^"\\]*)"\s*:\s*\{')
_TITLE = re.compile(r'"[a-z_ ]*title"\s*:', re.IGNORECASE)
_ANSWER = re.compile(
    r'\{(?:(?!"title")[^\[\]{}])*"(data|items|results|papers|records|documents|publications|works|articles|hits)"'
    r"\s*:\s*\[\s*(?:null\s*,\s*)*\{"
)
"""An object with a list of papers, as databases answer (Lens, Dimensions)."""

_OF_SENTENCES = ("pred_labels", OFFSETS)
_OWN = frozenset((*FIELDS, *_OF_SENTENCES))


def read_records(source: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records with their places (``{file}, line {number}``), unchanged; blank lines are skipped.

    Raises CorpusError for a source that cannot be read, and for a line that is not UTF-8, not a JSON
    object, or longer than MAX_LINE_BYTES.

    >>> _ = Path("papers.jsonl").write_text('{"paper_id": 7, "title": "On fish"}')
    >>> list(read_records("papers.jsonl"))
    [('papers.jsonl, line 1', {'paper_id': 7, 'title': 'On fish'})]
    """
    with open_source(source) as stream:
        for where, record in _entries(stream, display_name(source)):
            if isinstance(record, RecordError):
                raise record
            yield where, dict(record)


def recognizes(head: Head) -> bool:
    """Whether this is JSON in which something has a title."""
    return head.text.startswith(("{", "[")) and _TITLE.search(head.text) is not None


def read_entries(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The records of a stream (a `qbe.corpus.formats.Reader`); blank lines are skipped.

    >>> data = b'[{"_id": 7, "title": "On fish", "text": "Fish swim.", "year": "2019"}]'
    >>> [entry] = read_entries(io.BufferedReader(io.BytesIO(data)), "papers.json", Reading())
    >>> entry.record
    {'paper_id': 7, 'title': 'On fish', 'abstract': 'Fish swim.', 'metadata': {'year': 2019}}
    """
    lacking = set(reading.columns.values())
    by_names: dict[tuple[str, ...], columns.Columns] = {}

    def record(original: Mapping[str, Any], where: str) -> dict[str, Any]:
        is_own = "paper_id" in original and not reading.columns
        metadata = original.get("metadata")
        own_alone = original.keys() <= _OWN or "title" not in original
        if is_own and (own_alone or not isinstance(metadata, Mapping | None)):
            return dict(original)
        names = tuple(original)
        lacking.difference_update(names)
        if names not in by_names:
            by_names[names] = _columns(names, reading.columns, where)
        if is_own:
            told = columns.metadata_of(_values(original, names, by_names[names]), where)
            return {**original, "metadata": told | present(metadata or {})}
        return _record(original, names, by_names[names], where)

    yield from converted(_entries(stream, name), record)
    if lacking:
        raise CorpusError(
            f"{name}: expected records with {', '.join(map(ascii, sorted(lacking)))}, found none; "
            "check `columns`"
        )


def _columns(names: tuple[str, ...], named: Mapping[str, str], where: str) -> columns.Columns:
    """The positions of the fields of papers; raises RecordError where none is the title."""
    there = {field: column for field, column in named.items() if column in names}
    try:
        return columns.find_columns(names, there, where, may_lack_abstract=True)
    except CorpusError as error:
        raise RecordError(str(error), "no title") from None


def _values(original: Mapping[str, Any], names: tuple[str, ...], places: columns.Columns) -> dict[str, Any]:
    return {field: original[names[position]] for field, position in places.positions.items()}


def _record(
    original: Mapping[str, Any], names: tuple[str, ...], places: columns.Columns, where: str
) -> dict[str, Any]:
    """Qbe's record of one with other names."""
    made = columns.to_record(places, _values(original, names, places), where)
    if isinstance(made["abstract"], list):
        made |= {each: original[each] for each in _OF_SENTENCES if each in original}
    if isinstance(original.get("metadata"), Mapping):
        made["metadata"] |= original["metadata"]
    return made


def _entries(stream: io.BufferedReader, name: str) -> Iterator[Entry]:
    """The objects as they are; one of an object of objects (CSFCube's form) gets its name as its id."""
    head = head_of(stream, name)
    match = _MAPPING.match(head.text)
    if match is None or match[1] in FIELDS or any(key.lower().endswith("title") for key in head.record):
        answer = _ANSWER.match(head.text)
        yield from json_objects(stream, name, (answer[1],) if answer else None)
        return
    for key, (where, record) in object_items(stream, name):
        yield Entry(where, record if isinstance(record, RecordError) else {"paper_id": key, **record})


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
