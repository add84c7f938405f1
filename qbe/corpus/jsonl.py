"""Papers in JSON: one object a line (or one object of all, see `qbe.corpus.jsonmap`), or one paper a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from qbe.corpus.decode import decode_record, decode_text
from qbe.corpus.jsonmap import is_mapping, read_mapping
from qbe.corpus.record import Splitter, paper_to_record, parse_paper
from qbe.corpus.streams import MAX_LINE_BYTES, display_name, numbered_lines, open_source
from qbe.errors import CorpusError
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
    name = display_name(source)
    with open_source(source) as stream:
        if is_mapping(stream):
            yield from read_mapping(stream, name)
            return
        for number, line in numbered_lines(stream, name):
            where = f"{name}, line {number}"
            text = decode_text(line.removeprefix(_BOM) if number == 1 else line, where).rstrip()
            if text:
                yield where, decode_record(text, where, "one JSON object a line")


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


def read_paper_file(source: str | Path, split: Splitter | None = None) -> Paper:
    """The paper of a JSON file or of standard input (``-``); without ``paper_id`` its id is ``query``.

    Raises CorpusError where the file is not one JSON object that `parse_paper` takes.

    >>> _ = Path("query.json").write_text('{"title": "On fish", "abstract": ["Fish swim."]}')
    >>> read_paper_file("query.json").paper_id
    'query'
    """
    where = display_name(source)
    with open_source(source) as stream:
        data = stream.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        raise CorpusError(
            f"{where}: expected one paper, found more than {MAX_LINE_BYTES >> 20} MiB; shorten it"
        )
    text = decode_text(data.removeprefix(_BOM), where)
    if not text.strip():
        raise CorpusError(f"{where}: expected one JSON object, found nothing; give title and abstract")
    return parse_paper(decode_record(text, where), where, split, default_id="query")


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
