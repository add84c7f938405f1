"""Papers in one JSON object, id to record: ``{"123": {"paper_id": ...}, ...}``.

CSFCube's file of 800,000 abstracts is passed around in this form. It is read record by record, so that
memory stays bounded by one record.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from qbe.corpus.decode import DECODER, checked_record, malformed
from qbe.corpus.record import FIELDS
from qbe.corpus.streams import MAX_LINE_BYTES
from qbe.errors import CorpusError

_CHUNK_BYTES = 1 << 20
_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"([^"\\]*)"\s*:\s*\{')
_KEY = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*(?=\S)')
_END = re.compile(r"\s*(?:\{\s*)?\}\s*\Z")


def is_mapping(stream: io.BufferedReader) -> bool:
    """Whether the stream, still at its start, begins as an object of objects and not as a record.

    >>> is_mapping(io.BufferedReader(io.BytesIO(b'{"7": {"title": "On fish"}}')))
    True
    >>> is_mapping(io.BufferedReader(io.BytesIO(b'{"metadata": {"year": 2019}}')))
    False
    """
    match = _START.match(stream.peek(1 << 12))
    return match is not None and match[1].decode(errors="replace") not in FIELDS


def read_mapping(stream: io.BufferedReader, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records with their places (``{name}, entry {number}``); a record without ``paper_id`` gets its key.

    Raises CorpusError for malformed JSON, text that is not UTF-8, and entries over MAX_LINE_BYTES.

    >>> stream = io.BufferedReader(io.BytesIO(b'{"7": {"title": "On fish"}}'))
    >>> list(read_mapping(stream, "papers.json"))
    [('papers.json, entry 1', {'title': 'On fish', 'paper_id': '7'})]
    """
    window = _Window(stream, name)
    while (entry := window.entry()) is not None:
        key, record = entry
        record.setdefault("paper_id", key)
        yield window.where, record


class _Window:
    """The part of the text that is read but not yet parsed."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream = stream
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._number = 0

    @property
    def where(self) -> str:
        return f"{self._name}, entry {self._number}"

    def entry(self) -> tuple[str, dict[str, Any]] | None:
        """The next key and record; None after the last."""
        self._number += 1
        while True:
            try:
                return self._parse()
            except json.JSONDecodeError as error:
                # Malformed text may only be incomplete: try again with more, until there is none.
                if len(self._text) - self._at > MAX_LINE_BYTES or not self._more():
                    relative = json.JSONDecodeError(error.msg, error.doc[self._at :], error.pos - self._at)
                    raise malformed(relative, self._text[self._at :], self.where) from None
            except (ValueError, RecursionError) as error:
                raise malformed(error, self._text[self._at :], self.where) from None

    def _parse(self) -> tuple[str, dict[str, Any]] | None:
        key = _KEY.match(self._text, self._at)
        if key is None:
            if _END.match(self._text, self._at) and not self._more():
                return None
            raise json.JSONDecodeError("Expecting a paper id and its record", self._text, self._at)
        record, end = DECODER.raw_decode(self._text, key.end())
        record = checked_record(record, self._text[key.end() : end], self.where)
        self._at = end
        return json.loads(key[1]), record

    def _more(self) -> bool:
        """Read more text, twice as much each time, so that a long record is not parsed too often."""
        rest = self._text[self._at :]
        data = self._stream.read(max(_CHUNK_BYTES, len(rest)))
        try:
            self._text, self._at = rest + self._decoder.decode(data, final=not data), 0
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{self.where}: expected UTF-8 text, found byte 0x{error.object[error.start]:02x} in it or "
                "shortly after; convert the file to UTF-8"
            ) from None
        return bool(data)
