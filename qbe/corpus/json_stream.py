"""JSON text to records, with errors that name the place: lines by the standard library, arrays by ijson."""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import ijson

from qbe.corpus.fields import NOT_THIS_FORMAT, noted, unfit
from qbe.corpus.names import WORDS
from qbe.corpus.records import Entry, check_unicode
from qbe.corpus.streams import MAX_LINE_BYTES, Bounded, Head, head_of, numbered_lines
from qbe.errors import CorpusError, RecordError


class _Object(dict[str, Any]):
    twice: tuple[str, ...] = ()

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self and self[name] != value:
            self.twice += (name,)
        super().__setitem__(name, value)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) < len(pairs):
        made = _Object()
        for name, value in pairs:
            made[name] = value
    return made


# pandas and Python write NaN, which JSON does not know, for a missing value: read it as one.
DECODER = json.JSONDecoder(parse_constant=lambda _: None, object_pairs_hook=_object_of)

# So little at a time that brackets in it cannot nest deeply; without floats ijson dies of long integers.
_OPTIONS: Any = {"use_float": True, "multiple_values": True, "buf_size": 1 << 13}
_ADVICE = "write one paper an object"
_KINDS: dict[type, str] = {list: "an array", str: "a string"}
_BEHIND = re.compile(rb"[}\]][ \t\r]*+\n\s*+(?=\{)")  # before an object behind a whole text, on its own line
_LISTS = WORDS["lists"]  # the names of lists of papers in the answers of databases


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
    if value is None:  # stands in an answer for what is not known
        raise unfit("a JSON object", "null", _ADVICE, "null", where, is_fault=False)
    kind = _KINDS.get(type(value), "a number or boolean")
    raise unfit("a JSON object", kind, _ADVICE, "not a JSON object", where)


def list_path(head: Head) -> str | None:
    """Return the path of the list of records in an answer of a database, such as ``message.items``."""
    if not head.text.startswith("{"):
        return None
    source = Bounded(io.BufferedReader(io.BytesIO(head.data)), head.name, MAX_LINE_BYTES)
    place: str | None = None
    with contextlib.suppress(ijson.JSONError, ValueError, OverflowError, CorpusError):
        for prefix, event, value in ijson.parse(source, **_OPTIONS):
            if place is not None and event == "start_map":
                return place
            if event == "end_array" and prefix == place:
                place = None
            if "item" in prefix.split("."):
                continue
            if event == "map_key" and value.lower() in ("title", "doi"):
                return None
            if event == "start_array" and prefix.rpartition(".")[2] in _LISTS:
                place = prefix
    return None


def json_objects(stream: io.BufferedReader, name: str) -> Iterator[Entry]:
    """Return the objects of the list of an answer (`list_path`).

    Where there is none they are those of an array, of lines, or one after another, as the text begins.
    Another line or item that is no object is an error in its entry. Malformed JSON concerns its line alone;
    elsewhere it raises CorpusError.
    """
    head = head_of(stream, name)
    path = list_path(head)
    is_array = path is not None or head.text.startswith("[")
    # One object over several lines.
    if is_array or head.text.partition("\n")[0].rstrip().endswith(("{", "[", ",")):
        prefix = (f"{path}.item" if path else "item") if is_array else ""
        return object_items(stream, name, prefix)
    return json_lines(numbered_lines(stream, name), name)


def json_lines(lines: Iterable[tuple[int, bytes]], name: str) -> Iterator[Entry]:
    for number, line in lines:
        where = f"{name}, line {number}"
        try:
            if decoded := decode_text(line, where).rstrip():
                yield Entry(where, decode_record(decoded, where, "one JSON object a line"))
        except RecordError as error:
            yield Entry(where, error)


def object_items(stream: io.BufferedReader, name: str, prefix: str | None = None) -> Iterator[Entry]:
    """Yield the objects at a prefix; without one the members of an object, whose names are their ids."""
    source, number = Bounded(stream, name, MAX_LINE_BYTES), 0
    try:
        if prefix is None:
            values = ijson.kvitems(source, "", map_type=_Object, **_OPTIONS)
        else:
            values = (("", value) for value in ijson.items(source, prefix, map_type=_Object, **_OPTIONS))
        for number, (key, value) in enumerate(values, start=1):
            where = source.begin(f"{name}, item {number}")
            try:
                record = _object(value, where)
                if prefix is None:
                    record = noted({"paper_id": key, **record}, getattr(record, "twice", ()), "last")
                yield Entry(where, record)
            except RecordError as error:
                yield Entry(where, error)
        _, *behind = _BEHIND.split(b"".join(source.last)) if prefix else [b""]
        if behind and not {"title", "doi"}.isdisjoint(map(str.lower, Head(name, behind[-1]).record)):
            where = f"{name}, behind the list"
            yield Entry(where, unfit("its end", "an object", "put it inside", NOT_THIS_FORMAT, where))
    except (ijson.JSONError, ValueError, OverflowError) as error:
        place = f"{name}, after item {number}" if number else name
        said = error.args[0] if error.args else ""
        said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        reason = ascii(said.partition("\n")[0].strip())[1:-1]
        found = f"it malformed or cut ({reason}); mend the file or fetch it again"
        raise CorpusError(f"{place}: expected JSON, found {found}") from None
