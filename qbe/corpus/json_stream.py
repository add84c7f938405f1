"""JSON text to records, with errors that name the place: lines by the standard library, arrays by ijson."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from qbe.corpus.fields import unfit
from qbe.corpus.records import Entry, check_unicode
from qbe.corpus.streams import MAX_LINE_BYTES, Bounded, head_of, numbered_lines
from qbe.errors import CorpusError, RecordError

# pandas and Python write NaN, which JSON does not know, for a missing value: read it as one.
DECODER = json.JSONDecoder(parse_constant=lambda _: None)

_PIECE_BYTES = 1 << 13  # so little at a time that brackets in it cannot nest deeply
_KINDS = {list: "an array", str: "a string", type(None): "null"}


def decode_text(data: bytes, where: str = "") -> str:
    """Decode UTF-8; raises RecordError for another encoding."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at position {error.start + 1}"
        found = "UTF-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else found
        advice, reason = "convert the file to UTF-8", "text that is not UTF-8"
        raise unfit("UTF-8 text", found, advice, reason, where) from None


def decode_record(text: str, where: str = "", expected: str = "a JSON object") -> dict[str, Any]:
    """Return the JSON object of a text; raises RecordError for other values and lone surrogates."""
    try:
        record = DECODER.decode(text)
        # In decoded UTF-8 only an escape brings a surrogate; a search is cheaper than a check of each line.
        written = json.dumps(record, ensure_ascii=False) if "\\ud" in text or "\\uD" in text else ""
    except (ValueError, RecursionError) as error:
        problem, advice = f"malformed JSON ({str(error).partition(';')[0]})", "mend or remove it"
        if isinstance(error, RecursionError):
            problem = "values nested too deeply"
        elif isinstance(error, json.JSONDecodeError):
            line = f"line {error.lineno}, " if error.lineno > 1 else ""
            problem = f"malformed JSON ({error.msg} at {line}column {error.colno})"
        if "\0" in text:
            expected, problem, advice = "JSON", "a NUL byte", "remove it or fetch the file again"
        raise unfit(expected, problem, advice, "malformed JSON", where) from None
    check_unicode(written, where)
    return _object(record, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    kind = _KINDS.get(type(value), "a number or boolean")
    raise unfit("a JSON object", kind, "write one paper an object", "not a JSON object", where)


def json_objects(stream: io.BufferedReader, name: str, path: str | None = None) -> Iterator[Entry]:
    """Yield the objects of the array at a path such as ``message.items``.

    Without a path they are those of an array, of lines, or one after another, as the text begins. Null is
    skipped; another line or item that is no object is an error in its entry. Malformed JSON concerns its line
    alone; elsewhere it raises CorpusError.
    """
    text = head_of(stream, name).text
    is_array = path is not None or text.startswith("[")
    is_spread = text.partition("\n")[0].rstrip().endswith(("{", "[", ","))  # one object over several lines
    if is_array or is_spread:
        prefix = (f"{path}.item" if path else "item") if is_array else ""
        yield from (entry for _, entry in object_items(stream, name, prefix))
        return
    for number, line in numbered_lines(stream, name):
        where = f"{name}, line {number}"
        try:
            if decoded := decode_text(line, where).rstrip():
                yield Entry(where, decode_record(decoded, where, "one JSON object a line"))
        except RecordError as error:
            yield Entry(where, error)


def object_items(
    stream: io.BufferedReader, name: str, prefix: str | None = None
) -> Iterator[tuple[str, Entry]]:
    """Yield the objects that are the members of an object, with their names; with a prefix those there."""
    import ijson

    source, number = Bounded(stream, name, MAX_LINE_BYTES), 0
    options = {"use_float": True, "multiple_values": True, "buf_size": _PIECE_BYTES}
    values = (
        ijson.kvitems(source, "", **options) if prefix is None else ijson.items(source, prefix, **options)
    )
    try:
        for value in values:
            number += 1
            where = source.begin(f"{name}, item {number}")
            key, value = value if prefix is None else ("", value)
            try:
                record: dict[str, Any] | RecordError = _object(value, where)
            except RecordError as error:
                record = error
            if value is None:  # stands in an answer for what is not known
                message = f"{where}: expected a JSON object, found null; nothing is known of it"
                record = RecordError(message, "null", is_fault=False)
            yield key, Entry(where, record)
    except (ijson.JSONError, ValueError, OverflowError) as error:
        place = f"{name}, after item {number}" if number else name
        said = error.args[0] if error.args else ""
        said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        reason = ascii(said.partition("\n")[0].strip())[1:-1]
        raise CorpusError(
            f"{place}: expected JSON, found it malformed or cut ({reason}); mend the file or fetch it again"
        ) from None
