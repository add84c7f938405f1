"""The metadata of all papers of an index, without the rest of their records.

Records are long and metadata is short: of each line only the object under ``metadata`` is parsed, and many
of them at a time, in a third of the time that the records would take (176,320 arXiv papers: 0.5 s).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from qbe.errors import IndexFormatError

Metadata = Mapping[str, Any]

_BLOCK = 512
"""Records whose metadata is parsed in one go."""

_KEY = b'"metadata": '
"""What stands before the metadata in a line that `qbe.corpus.jsonl.dump_record` wrote. It is the last field,
and the quotes of no text in front of it are bare, so that the first such bytes are those of the field.
"""


def read_metadata(lines: Iterable[bytes]) -> Iterator[Metadata]:
    """The metadata of each record of the lines of papers, in order; empty for one without.

    >>> lines = [b'{"paper_id": "1", "title": "A", "metadata": {"year": 2019}}', b'{"paper_id": "2"}']
    >>> list(read_metadata(lines))
    [{'year': 2019}, {}]
    """
    lines = iter(lines)
    while block := list(islice(lines, _BLOCK)):
        yield from _parsed(block)


def _parsed(lines: Sequence[bytes]) -> list[Metadata]:
    try:
        metadata = json.loads(b"[" + b",".join(map(_metadata, lines)) + b"]")
        if len(metadata) == len(lines) and set(map(type, metadata)) == {dict}:
            return list(metadata)
    except (ValueError, RecursionError):
        pass  # a file that something else has written, or an older qbe
    try:
        return [json.loads(line).get("metadata") or {} for line in lines]
    except RecursionError:
        raise IndexFormatError(
            "expected papers whose metadata are not nested deeply, found deeper ones; build the index again"
        ) from None


def _metadata(line: bytes) -> bytes:
    begin = line.find(_KEY)
    return b"{}" if begin < 0 else line[begin + len(_KEY) : line.rindex(b"}")]
