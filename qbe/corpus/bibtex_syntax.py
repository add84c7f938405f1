"""The syntax of BibTeX: entries with their types, keys and fields, out of the bytes of a file.

It is read by few regular expressions, with what people's files have and Oren Patashnik's "BibTeXing" has
not: entries without a key, fields that occur twice, comments, spaces in names of fields. What is wrong with
an entry concerns this one alone, which ends where a line begins the next.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

from qbe.corpus.decode import decode_text
from qbe.corpus.record import MAX_ABSTRACT_CHARS
from qbe.errors import RecordError

MAX_ENTRY_BYTES = 4 << 20
"""A longer entry is an error instead of filling the memory; real ones are far shorter."""

_CHUNK_BYTES = 1 << 20
_BEGIN_BYTES = 1 << 8
"""As long may be what begins an entry, at the end of what is read of a file."""

_LINE_END = re.compile(r"\r\n?|\n")
_SPACE = rb"(?:[ \t\v\f\x1c-\x1f]|\xc2[\x85\xa0]|\xef\xbb\xbf)"
_BLOCK = re.compile(rb"(?:\r\n?|\n)%b*@[ \t]*[\w\x80-\xff-]{1,99}(?:\s|%b){0,99}[{(]" % (_SPACE, _SPACE))
_BEGIN = re.compile(r"%[^\n\r]*|(?<![\w.\\])@[ \t]*([\w-]+)\s*([{(])")
_KEY = {"}": re.compile(r'\s*([^,={}"#]*)'), ")": re.compile(r'\s*([^,={}"#)]*)')}
_USUAL = re.compile(
    r"\s*([A-Za-z][\w:.+/-]*+)\s*=\s*"
    r'(?:\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}|"([^"{}]*+)"|(\w++))\s*(?:,\s*|(?=[})]))'
)
"""A field with a single value, in braces within at most two others, and its comma."""

_WORD = 4
"""The group of _USUAL for a number or the name of a string."""

_FIELD = re.compile(r'(?:[\s,]|%[^\n]*)*(?:([^=,{}"#%()\s][^=,{}"#\n]*?)\s*=\s*)?')
_PART = re.compile(r'[^\s,#{}"()=%]*')
_AFTER_PART = re.compile(r"(?:\s|%[^\n]*)*(#\s*)?")
_BRACE, _BRACE_OR_QUOTE = re.compile(r"[{}]"), re.compile(r'[{}"]')
_LOST = re.compile(r"[\s,})]*[\w-]+\s*=\s*[{\"\w]")
_STRAY = re.compile(r'^[ \t]*([\w-]+\s*=\s*[{"])', re.MULTILINE)
_SHOWN = {1: "\\{", 2: "\\}", 3: '\\"'}
"""What control characters stand for where signs after a backslash are to have no meaning."""

_IGNORED = frozenset(("comment", "preamble"))


class BibtexEntry(NamedTuple):
    """An entry: its type and the names of its fields in lower case, values without braces and with the texts
    of ``@string`` in place of their names; ``key`` is '' where there is none.
    """

    kind: str
    key: str
    fields: dict[str, str]


Original = tuple[str, BibtexEntry | RecordError]
"""The place of an entry, and the entry or what is wrong with it."""


def read_entries(stream: io.BufferedReader, name: str) -> Iterator[Original]:
    r"""Each entry of a file with its place, or what is wrong with it.

    Of a field that occurs twice the first value counts that is not empty.

    >>> text = b'@string{jml = "Fish Letters"}\n@article{a9, title = {On {F}ish}, Journal = jml # { B}}'
    >>> [(where, entry)] = read_entries(io.BufferedReader(io.BytesIO(text)), "refs.bib")
    >>> where, entry.key, entry.fields
    ('refs.bib, line 2', 'a9', {'title': 'On {F}ish', 'journal': 'Fish Letters B'})
    """
    strings: dict[str, str] = {}
    for number, data in _blocks(stream):
        where = f"{name}, line {number}"
        if data is None:
            yield where, _broken(where, f"at most {MAX_ENTRY_BYTES >> 20} MiB of text", "more")
            continue
        try:
            text = "\n" + decode_text(data[1 + data.startswith(b"\r\n") :], where)
        except RecordError as error:
            yield where, error
            continue
        found = _entries(text, number, name, strings)
        if "\\" in text and any(isinstance(entry, RecordError) for _, entry in found):
            # For BibTeX all braces count; where they are not balanced so, those after a backslash do not.
            hidden = text.replace("\\{", "\1").replace("\\}", "\2").replace('\\"', "\3")
            others = _entries(hidden, number, name, strings)
            if not any(isinstance(entry, RecordError) for _, entry in others):
                found = others
        yield from found


def _blocks(stream: io.BufferedReader) -> Iterator[tuple[int, bytes | None]]:
    """Text from one line that begins an entry to the next, with its line; None for one that is too long."""
    data, line, searched, of_long = b"\n", 0, 0, 0
    while chunk := stream.read(_CHUNK_BYTES):
        data += chunk
        begin = 0
        for match in _BLOCK.finditer(data, searched):
            if match.start() > begin:
                block = data[begin : match.start()]
                yield of_long or line + 1, None if of_long or len(block) > MAX_ENTRY_BYTES else block
                line, begin, of_long = line + _line_ends(block), match.start(), 0
        data = data[begin:]
        if len(data) > MAX_ENTRY_BYTES + _BEGIN_BYTES:
            line, of_long = line + _line_ends(data[:-_BEGIN_BYTES]), of_long or line + 1
            data = data[-_BEGIN_BYTES:]
        searched = max(0 if of_long else 1, len(data) - _BEGIN_BYTES)
    yield of_long or line + 1, None if of_long or len(data) > MAX_ENTRY_BYTES else data


def _line_ends(text: bytes) -> int:
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _entries(text: str, number: int, name: str, strings: MutableMapping[str, str]) -> list[Original]:
    """The entries of a block, usually one; what ``@string`` defines is added to the strings."""
    place, found = 0, list[Original]()

    def line(end: int) -> int:
        return number - 1 + len(_LINE_END.findall(text, 0, end))

    while begin := _BEGIN.search(text, place):
        place, kind = begin.end(), (begin[1] or "comment").lower()
        if kind in _IGNORED:
            continue
        where = f"{name}, line {line(begin.start(1))}"
        try:
            entry, place = _entry(text, begin, strings)
            if _LOST.match(text, place):
                raise _BrokenError("as many closing braces as opening ones", "one more", place - 1)
        except _BrokenError as error:
            if kind != "string":
                found_there = f"{error.found} (line {line(error.place)})"
                found.append((where, _broken(where, error.expected, found_there)))
            break  # what follows may be parts of this entry
        if kind == "string":
            strings.update(entry.fields)
        else:
            found.append((where, entry))
            if begin := _STRAY.search(text, place):  # of an entry whose beginning is damaged
                where = f"{name}, line {line(begin.start(1))}"
                found.append((where, _broken(where, "the beginning of an entry", "a field without one")))
                break
    return found


class _BrokenError(Exception):
    """What an entry lacks, and where in the text."""

    def __init__(self, expected: str, found: str, place: int) -> None:
        super().__init__(expected)
        self.expected, self.found, self.place = expected, found, place


def _entry(text: str, begin: re.Match[str], strings: MutableMapping[str, str]) -> tuple[BibtexEntry, int]:
    """The entry that begins there, and the place after it; raises _BrokenError where it has no end."""
    kind, closer, place = begin[1].lower(), "}" if begin[2] == "{" else ")", begin.end()
    key, fields = "", dict[str, str]()
    if kind != "string":
        key, place = _key(text, place, closer)
    while True:
        if usual := _USUAL.match(text, place):
            name, value, place = usual[1], usual[usual.lastindex or 0], usual.end()
            if usual.lastindex == _WORD:
                value = strings.get(value.lower(), value)
        else:
            field = _FIELD.match(text, place)
            place = field.end() if field else place
            if field is None or field[1] is None:
                if text.startswith(closer, place):
                    if "\1" in text or "\2" in text or "\3" in text:
                        fields = {name: value.translate(_SHOWN) for name, value in fields.items()}
                    return BibtexEntry(kind, key, fields), place + 1
                raise _unexpected(text, place, "a field or a closing brace")
            name = field[1]
            value, place = _value(text, place, strings)
            if not text.startswith((",", closer), place):
                raise _unexpected(text, place, f"a comma after '{name}'")
        name = name.lower()
        if not fields.get(name):
            fields[name] = value


def _key(text: str, place: int, closer: str) -> tuple[str, int]:
    """The key, and the place where the fields begin."""
    match = _KEY[closer].match(text, place)
    key, end = (match[1].strip(), match.end()) if match else ("", place)
    if text.startswith((",", closer), end):
        return key, end + text.startswith(",", end)
    if text.startswith("=", end) and len(key.split()) < 2:
        return "", place
    raise _unexpected(text, end, "a comma after the key")


def _value(text: str, place: int, strings: MutableMapping[str, str]) -> tuple[str, int]:
    """A value, parts in braces or quotation marks, numbers and names of strings, joined by #; and the place
    after it.

    It is cut beyond what a paper may have: names of names of strings could make it long at will.
    """
    value = ""
    while True:
        begin = place
        if text.startswith(("{", '"'), place):
            place = _closed(text, place)
            value += text[begin + 1 : place - 1]
        elif part := _PART.match(text, place):
            place = part.end()
            value += strings.get(part[0].lower(), part[0])
        value = value[: MAX_ABSTRACT_CHARS + 1]
        after = _AFTER_PART.match(text, place)
        place = after.end() if after else place
        if after is None or after[1] is None:
            return value, place


def _closed(text: str, begin: int) -> int:
    """The place after the brace or the quotation mark that closes the one there."""
    is_quoted = text[begin] == '"'
    depth = 0 if is_quoted else 1
    for sign in (_BRACE_OR_QUOTE if is_quoted else _BRACE).finditer(text, begin + 1):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0 and (sign[0] == '"' or not is_quoted):
            return sign.end()
    raise _BrokenError("a closing quotation mark" if is_quoted else "a closing brace", "none", begin)


def _unexpected(text: str, place: int, expected: str) -> _BrokenError:
    actual = text[place : place + 40].strip().partition("\n")[0].translate(_SHOWN)
    return _BrokenError(expected, repr(actual) if actual else "the end of the entry", place)


def _broken(where: str, expected: str, found: str) -> RecordError:
    message = f"{where}: expected {expected}, found {found}; mend or remove the entry"
    message = "".join(each if each.isprintable() else " " for each in message.replace("`", "'"))
    return RecordError(" ".join(message.split()), "a broken entry")
