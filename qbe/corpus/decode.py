"""JSON text to records, with errors that name the place: one object, or a stream of them (one a line, of an
array or of an object, one after another).
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from qbe.corpus.head import head_of
from qbe.corpus.reading import Entry
from qbe.corpus.record import check_unicode
from qbe.corpus.streams import MAX_LINE_BYTES, numbered_lines
from qbe.errors import CorpusError, RecordError

# pandas and Python write NaN, which JSON does not know, for a missing value: read it as one.
DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def decode_text(data: bytes, where: str) -> str:
    """UTF-8 bytes as text; raises RecordError for another encoding.

    >>> decode_text("Müller".encode("latin-1"), "papers.jsonl, line 3")
    Traceback (most recent call last):
        ...
    qbe.errors.RecordError: papers.jsonl, line 3: expected UTF-8 text, found byte 0xfc at position 2; ...
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        actual = f"byte 0x{data[error.start]:02x} at position {error.start + 1}"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            actual = "UTF-16"
        raise RecordError(
            f"{where}: expected UTF-8 text, found {actual}; convert the file to UTF-8",
            "text that is not UTF-8",
        ) from None


def decode_record(text: str, where: str, expected: str = "a JSON object") -> dict[str, Any]:
    """The JSON object a text holds; raises RecordError for malformed JSON and other values.

    >>> decode_record('{"paper_id": "p1", "year": NaN}', "papers.jsonl, line 3")
    {'paper_id': 'p1', 'year': None}
    """
    try:
        record = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(error, text, where, expected) from None
    return _checked_record(record, text, where)


def _checked_record(record: Any, text: str, where: str) -> dict[str, Any]:
    """The record read from a text; raises RecordError unless it is an object without lone surrogates."""
    if not isinstance(record, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(
            type(record), "a number or boolean"
        )
        raise RecordError(
            f"{where}: expected a JSON object, found {kind}; write one paper an object", "not a JSON object"
        )
    # In decoded UTF-8 only an escape can bring a surrogate; a search is cheaper than a check of each line.
    if "\\ud" in text or "\\uD" in text:
        try:
            written = json.dumps(record, ensure_ascii=False)
        except RecursionError as error:  # nested just under the decoder's own limit
            raise _malformed(error, text, where) from None
        check_unicode(written, where)
    return record


def _malformed(error: Exception, text: str, where: str, expected: str = "a JSON object") -> RecordError:
    """The error for text that is no JSON, from the exception of the decoder."""
    problem = f"malformed JSON ({str(error).partition(';')[0]})"
    if isinstance(error, RecursionError):
        problem = "values nested too deeply"
    elif isinstance(error, json.JSONDecodeError):
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        problem = f"malformed JSON ({error.msg} at {line}column {error.colno})"
    advice = "mend or remove it"
    if "\0" in text:
        expected, problem, advice = "JSON", "a NUL byte", "remove it or fetch the file again"
    return RecordError(f"{where}: expected {expected}, found {problem}; {advice}", "malformed JSON")


def plain_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a typed table as in JSON: its metadata without dates, decimals, NaN.

    >>> plain_record({"paper_id": 7, "metadata": {"year": float("nan")}})
    {'paper_id': 7, 'metadata': {'year': None}}
    """
    if record.get("metadata") is not None:
        written = json.dumps(record["metadata"], default=str)
        record["metadata"] = DECODER.decode(written)
    return record


_CHUNK_BYTES = 1 << 20
_NO_SPACE = re.compile(r"[^ \t\n\r]")
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A bracket, or a text, in which brackets do not count; it may be cut."""

_DEPTHS = {"{": 1, "[": 1, "}": -1, "]": -1}

_OF_PAPER = re.compile(r'"(title|abstract\w*|display_name|DOI)"\s*:')
"""Names that an object has once, if no other stands within it."""

_LONGEST_TOKEN = 16
"""Nothing but a string that is cut can make an error further from the end of the text than this."""


def json_objects(
    stream: io.BufferedReader, name: str, keys: tuple[str, ...] | None = None
) -> Iterator[Entry]:
    r"""The objects of the array under ``keys``, of the array that the whole text is where these are empty;
    without keys those of an array, or of lines, or one by one, as the text begins.

    What else the text holds is skipped. Several such texts may follow each other, as pages of an answer
    do. An item that is no object, is malformed between its brackets, or holds what is not UTF-8, is an error
    in its entry; null, which stands for what an answer has not, is none that ends a reading.

    Raises CorpusError for other malformed JSON, for a text without such an array, and for an item (or another
    value) over MAX_LINE_BYTES.

    >>> for data in b'{"id": 1}\n{"id": 2}', b'[{"id": 1}, {"id": 2}]', b'{\n"id": 1\n}\n{\n"id": 2\n}':
    ...     [entry.record for entry in json_objects(io.BufferedReader(io.BytesIO(data)), "works.json")]
    [{'id': 1}, {'id': 2}]
    [{'id': 1}, {'id': 2}]
    [{'id': 1}, {'id': 2}]
    >>> stream = io.BufferedReader(io.BytesIO(b'{"n": 2, "items": [{"DOI": "10.1/2"}, {"DOI" "10.1/3"}]}'))
    >>> first, second = json_objects(stream, "works.json", ("items",))
    >>> first.where, first.record, second.record.reason
    ('works.json, item 1', {'DOI': '10.1/2'}, 'malformed JSON')
    """
    text = head_of(stream, name).text
    if keys is not None or text.startswith("["):
        return _Window(stream, name).pages(keys or ())
    if text.partition("\n")[0].rstrip().endswith(("{", "[", ",")):  # an object over several lines
        return _Window(stream, name).items("")
    return _json_lines(stream, name)


def _json_lines(stream: io.BufferedReader, name: str) -> Iterator[Entry]:
    """The JSON objects of a stream, one a line; blank lines are skipped."""
    for number, line in numbered_lines(stream, name):
        where = f"{name}, line {number}"
        try:
            if text := decode_text(line, where).rstrip():
                yield Entry(where, decode_record(text, where, "one JSON object a line"))
        except RecordError as error:
            yield Entry(where, error)


def object_items(stream: io.BufferedReader, name: str) -> Iterator[tuple[str, Entry]]:
    """The objects that are the members of an object, with their names.

    >>> stream = io.BufferedReader(io.BytesIO(b'{"7": {"title": "On fish"}}'))
    >>> list(object_items(stream, "papers.json"))
    [('7', Entry(where='papers.json, item 1', record={'title': 'On fish'}))]
    """
    window = _Window(stream, name)
    while window.character():
        for key in window.members("an object"):
            yield key, window.item()


class _Window:
    """The part of the text that is read but not yet parsed."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._where = self._name = name
        self._stream = stream
        # What is not UTF-8 becomes lone surrogates, so that it concerns only the item that it is in.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._text = ""
        self._at = 0
        self._number = 0

    def pages(self, keys: tuple[str, ...]) -> Iterator[Entry]:
        """The items under some keys of one text or of several."""
        yield from self._under(keys)
        while self.character():
            yield from self._under(keys)

    def _under(self, keys: tuple[str, ...]) -> Iterator[Entry]:
        """The items of the value at which the window stands."""
        if not keys:
            self._take("[", "an array")
            yield from self.items("]")
            self._take("]", "a comma or the end of the array")
            return
        is_there = False
        for key in self.members(f"an object with {keys[0]}"):
            if key == keys[0]:
                is_there = True
                yield from self._under(keys[1:])
            else:
                self._value()
        if not is_there:
            raise CorpusError(
                f"{self._where}: expected an object with {keys[0]}, found one without; check the file"
            )

    def character(self) -> str:
        """The next character that is not white space; '' at the end."""
        while True:
            if match := _NO_SPACE.search(self._text, self._at):
                self._at = match.start()
                return match[0]
            self._at = len(self._text)
            if not self._more():
                return ""

    def members(self, what: str) -> Iterator[str]:
        """The names of the members of an object; the value of each is to be stepped over before the next."""
        self._take("{", what)
        while self.character() not in ("}", ""):
            if self.character() != '"':
                self._take('"', "the name of a member")
            name = self._value()
            self._take(":")
            yield name
            if self.character() != ",":
                break
            self._take(",")
        self._take("}", "a comma or the end of the object")

    def items(self, end: str) -> Iterator[Entry]:
        """The items up to this character or the end, also where commas between them are too many or lack."""
        while (character := self.character()) not in (end, ""):
            if character == ",":
                self._take(",")
            else:
                yield self.item()

    def item(self) -> Entry:
        """The next item, stepped over."""
        self._number += 1
        self._where = where = f"{self._name}, item {self._number}"
        try:
            record: dict[str, Any] | RecordError = _checked(*self._parsed(), where)
        except RecordError as error:
            if not self._pass_broken():
                raise CorpusError(str(error)) from None
            record = error
        self._where = f"{self._name}, after item {self._number}"
        return Entry(where, record)

    def _take(self, expected: str, what: str = "") -> None:
        """Step over a character; raises CorpusError where another stands."""
        character = self.character()
        if character != expected:
            raise CorpusError(
                f"{self._where}: expected {what or repr(expected)}, found "
                f"{ascii(character) if character else 'the end of the file'}; mend the file or fetch it again"
            )
        self._at += 1

    def _value(self) -> Any:
        """The next value, stepped over; raises CorpusError for malformed JSON."""
        try:
            return self._parsed()[0]
        except RecordError as error:
            raise CorpusError(str(error)) from None

    def _parsed(self) -> tuple[Any, str]:
        """The next value and its text, stepped over; raises RecordError for malformed JSON."""
        self.character()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # More text may make a value of what is cut.
                is_cut = isinstance(error, json.JSONDecodeError) and (
                    error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _LONGEST_TOKEN
                )
                if is_cut and self._grow():
                    continue
                rest = self._text[self._at :]
                if isinstance(error, json.JSONDecodeError):
                    place = max(0, error.pos - self._at)
                    error = json.JSONDecodeError(error.msg, rest[: place + 1], place)
                    rest = rest[: place + 1]
                raise _malformed(error, rest, self._where, "a JSON value") from None
            length = end - self._at
            # A number near the end of the text may be longer.
            if len(self._text) - end > 2 or not isinstance(value, int | float) or not self._grow():
                break
        self._at += length
        return value, self._text[self._at - length : self._at]

    def _pass_broken(self) -> bool:
        """Step over a malformed object; False where nothing closes it, or others may be in between."""
        if self._text[self._at : self._at + 1] != "{":
            return False
        depth = begin = 0  # from where the window stands
        while True:
            end = self._at + begin
            for match in _BRACKET.finditer(self._text, end):
                end = match.start()
                if match.end() == len(self._text) and match[0][0] == '"':  # perhaps cut
                    break
                end = match.end()
                depth += _DEPTHS.get(match[0], 0)
                if depth <= 0:
                    has_others = _has_several_papers(self._text[self._at : end])
                    self._at = end
                    return not has_others and self.character() in ("", *",{]}")
            begin = end - self._at
            if not self._grow():
                return False

    def _grow(self) -> bool:
        """Read more text of the value at which the window stands; raises CorpusError where it is too long."""
        if len(self._text) - self._at > MAX_LINE_BYTES:
            raise CorpusError(
                f"{self._where}: expected at most {MAX_LINE_BYTES >> 20} MiB an item, found more; "
                "write one paper an item"
            )
        return self._more()

    def _more(self) -> bool:
        """Read more text, twice as much each time, so that a long item is not parsed too often."""
        rest = self._text[self._at :]
        data = self._stream.read(max(_CHUNK_BYTES, len(rest)))
        self._text, self._at = rest + self._decoder.decode(data, final=not data), 0
        return bool(data)


def _checked(value: Any, text: str, where: str) -> dict[str, Any] | RecordError:
    """The record, or why it is none; raises CorpusError where that may hold several papers."""
    if value is None:
        return RecordError(
            f"{where}: expected a JSON object, found null; nothing is known of it", "null", is_fault=False
        )
    try:
        if not text.isascii():
            decode_text(text.encode(errors="surrogateescape"), where)
        return _checked_record(value, text, where)
    except RecordError as error:
        if _has_several_papers(text) or (
            isinstance(value, list) and any(isinstance(each, dict) for each in value)
        ):
            raise CorpusError(str(error)) from None
        return error


def _has_several_papers(text: str) -> bool:
    """Whether the text of an item that cannot be used holds what names a paper more than once."""
    return max(Counter(_OF_PAPER.findall(text)).values(), default=0) > 1
