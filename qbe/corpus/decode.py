"""JSON text to records, with errors that name the place."""

from __future__ import annotations

import json
from typing import Any

from qbe.errors import RecordError

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
        raise malformed(error, text, where, expected) from None
    return checked_record(record, text, where)


def checked_record(record: Any, text: str, where: str) -> dict[str, Any]:
    """The record, if it is an object without lone surrogates; ``text`` is what it was read from.

    Raises RecordError, whose message begins with ``where``, for anything else.

    >>> checked_record(["p1"], '["p1"]', "papers.jsonl, line 3")
    Traceback (most recent call last):
        ...
    qbe.errors.RecordError: papers.jsonl, line 3: expected a JSON object, found an array; ...
    """
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
            raise malformed(error, text, where) from None
        check_unicode(written, where)
    return record


def malformed(error: Exception, text: str, where: str, expected: str = "a JSON object") -> RecordError:
    """The error for text that is no JSON, from the exception of the decoder.

    >>> print(malformed(RecursionError(), "[[[[", "papers.jsonl, line 3"))
    papers.jsonl, line 3: expected a JSON object, found values nested too deeply; mend or remove it
    """
    if "\0" in text:
        return RecordError(
            f"{where}: expected JSON, found a NUL byte; remove it or fetch the file again", "malformed JSON"
        )
    match error:
        case json.JSONDecodeError():
            place = (
                f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
            )
            problem = f"malformed JSON ({error.msg} at {place})"
        case RecursionError():
            problem = "values nested too deeply"
        case _:
            problem = f"malformed JSON ({str(error).partition(';')[0]})"
    return RecordError(f"{where}: expected {expected}, found {problem}; mend or remove it", "malformed JSON")


def check_unicode(text: str, where: str) -> None:
    """Raise RecordError for half a surrogate pair, which no UTF-8 file can hold.

    >>> check_unicode(chr(0xD800), "papers.jsonl, line 3")
    Traceback (most recent call last):
        ...
    qbe.errors.RecordError: papers.jsonl, line 3: expected Unicode text, found a lone surrogate ...
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RecordError(
            f"{where}: expected Unicode text, found a lone surrogate (\\ud800 to \\udfff); remove it",
            "a lone surrogate",
        ) from None


def plain_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a typed table as in JSON: its metadata without dates, decimals, NaN.

    >>> plain_record({"paper_id": 7, "metadata": {"year": float("nan")}})
    {'paper_id': 7, 'metadata': {'year': None}}
    """
    if record.get("metadata") is not None:
        written = json.dumps(record["metadata"], default=str)
        record["metadata"] = DECODER.decode(written)
    return record
