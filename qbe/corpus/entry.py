"""What a reader yields: one entry for each record of a source, also for one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from qbe.corpus.reading import Reading
from qbe.errors import RecordError

Original = TypeVar("Original")


class Entry(NamedTuple):
    """A record of a source, or what is wrong with it.

    ``where`` is its place (file and line, or file and number), with which every message about it begins.
    ``record`` has the fields of `qbe.corpus.record`, with ``abstract`` None where there is none.

    >>> Entry("papers.csv, line 2", {"paper_id": "1", "title": "On fish", "abstract": "Fish swim."}).where
    'papers.csv, line 2'
    """

    where: str
    record: Mapping[str, Any] | RecordError


def converted(
    originals: Iterable[tuple[str, Original | RecordError]],
    to_record: Callable[[Original, str], dict[str, Any] | None],
    reading: Reading | None = None,
) -> Iterator[Entry]:
    """The entries of records of another format, each of which is given with its place.

    ``to_record`` makes the record of an entry from such a record and its place. What it raises as RecordError
    becomes the entry, and so does a RecordError in place of an original. Left out is that of which it makes
    None, and with ``reading`` a paper without any of the categories that are wanted.

    >>> def to_record(title: str, where: str) -> dict[str, Any]:
    ...     if not title:
    ...         raise RecordError(f"{where}: expected a title, found none; add it", "no title")
    ...     return {"paper_id": where[-1], "title": title, "abstract": None, "metadata": {}}
    >>> for entry in converted([("titles, line 1", "On fish"), ("titles, line 2", "")], to_record):
    ...     print(entry.record)
    {'paper_id': '1', 'title': 'On fish', 'abstract': None, 'metadata': {}}
    titles, line 2: expected a title, found none; add it
    """
    for where, original in originals:
        try:
            if isinstance(original, RecordError):
                raise original
            record = to_record(original, where)
        except RecordError as error:
            yield Entry(where, error)
            continue
        if record is not None and (reading is None or reading.keeps(record["metadata"])):
            yield Entry(where, record)
