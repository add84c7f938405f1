"""BibTeX (Oren Patashnik, "BibTeXing") and BibLaTeX, with what people's files have besides.

An error concerns its entry alone, which ends where a line begins the next.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSet, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus.fields import date, doi
from qbe.corpus.json_stream import decode_text
from qbe.corpus.markup import clean_address, clean_bibtex, plain
from qbe.corpus.names import IDENTIFIER, are_several, has_others, person_name, read_name, rows, split_authors
from qbe.corpus.records import MAX_ABSTRACT_CHARS, Entry, Reading, converted
from qbe.corpus.streams import numbered_lines
from qbe.errors import RecordError
from qbe.util.text import one_line

JOURNALS = dict(rows("journals"))  # by their macros in ADS, without the backslash

_AND = re.compile(r"(?<!\s)\s+and(?=\s)", re.IGNORECASE)
_COMMA, _SPACE = re.compile(","), re.compile(r"(?<!\\[uvHckrdb])(?:\s|(?<!\\)~)+")
_EITHER = re.compile(r"[\s,]+")
_DBLP_NUMBER = re.compile(r"\s0\d{3}$")
_MARKED = re.compile(r"[{}\\~&=;]")
_NAME_PART = re.compile(r"\s*(family|given|prefix|suffix)\s*=(.*)", re.IGNORECASE | re.DOTALL)
_CONTAINER = re.compile(  # types of entries from which others may inherit that stand after them
    r"(?:mv)?(?:book|collection|proceedings|reference)|conference|journal|periodical|xdata"
)
_NO_PUBLICATION = re.compile(r"xdata|set|control|\w*bstctl")
_DATES, _VENUES = ("date", "year", "month", "day"), ("journal", "journaltitle", "booktitle")
_ONCE = {*_DATES, *_VENUES, "title", "subtitle", "author", "abstract", "keywords", "doi", "url", "eprint"}
_MOST_ANCESTORS = 8
_MONTH_NUMBER = re.compile(r"\W*+(\d{1,2})(?:(?=[^-/\u2013\w]*+[-/\u2013])\W*+\d{1,2})?\W*+", re.ASCII)
_ARXIV_ID = r"(\d{4}\.\d{4,5}|[a-z-]{1,20}(?:\.[A-Za-z-]{1,20})?/\d{7})(?:v\d+)?"
_ARXIV = re.compile(_ARXIV_ID)
_NAMED_ARXIV = re.compile(rf"(?:arxiv:\s?|arxiv\.org/(?:abs|pdf)/){_ARXIV_ID}", re.IGNORECASE)
_ANTHOLOGY = re.compile(r"\b(?:aclanthology\.org|aclweb\.org/anthology)/([A-Za-z0-9.-]+?)(?:\.pdf)?/?$")

MAX_ENTRY_BYTES = 4 << 20  # real ones are far shorter
_BLANK = rb"(?:[\s\x1c-\x1f]|\xc2[\x85\xa0]|\xef\xbb\xbf)"
_BLOCK = re.compile(rb"%b*+@[ \t]*[\w\x80-\xff-]{1,99}%b{0,99}+(?:[{(]|$)" % (_BLANK, _BLANK))
_BEGIN = re.compile(r"%[^\n\r]*|(?<![\w.\\])@[ \t]*([\w-]+)\s*([{(])")
_KEY = {"}": re.compile(r'\s*([^,={}"#]*)'), ")": re.compile(r'\s*([^,={}"#)]*)')}
# A field with a single value, in braces within at most two others, and its comma.
_USUAL = re.compile(
    r"\s*([A-Za-z][\w:.+/-]*+)\s*=\s*"
    r'(?:\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}|"([^"{}]*+)"|(\w++))\s*(?:,\s*|(?=[})]))'
)
_WORD = 4  # the group of _USUAL for a number or the name of a string
_FIELD = re.compile(r'(?:[\s,]|%[^\n]*)*(?:([^=,{}"#%()\s](?:[^=,{}"#\n]*[^=,{}"#\s])?)\s*=\s*)?')
_PART = re.compile(r'[^\s,#{}"()=%]*')
_AFTER_PART = re.compile(r"(?:\s|%[^\n]*)*(#\s*)?")
_BRACE, _BRACE_OR_QUOTE = re.compile(r"[{}]"), re.compile(r'[{}]|(?<!\\)"')
_CLOSED_AT_ONCE = re.compile(r"\}\s*,\s*(?=[\w-]+\s*=)")
_LOST = re.compile(r"[\s,})]*[\w-]+\s*=\s*[{\"\w]")
_SHOWN = {1: "\\{", 2: "\\}"}  # control characters stand for braces that are to have no meaning
# A field outside entries; what a stray % keeps from beginning one.
_STRAY = re.compile(r'(?:^|[,{])[ \t]*[\w-]+\s*=\s*[{"]|^[ \t]*@[\w-]+%', re.MULTILINE)


class BibtexEntry(NamedTuple):
    """Hold an entry, without braces; fields that are ``repeated`` have other values, too."""

    kind: str
    key: str
    fields: dict[str, str]
    repeated: Sequence[str] = ()


# The place of an entry, and the entry or what is wrong with it.
Original = tuple[str, BibtexEntry | RecordError]


def read(stream: io.BufferedReader, name: str, _: Reading) -> Iterator[Entry]:
    """Yield the entries of a file; those that inherit from later ones (``crossref``, ``xdata``) come last."""
    parents: dict[str, BibtexEntry] = {}

    def in_order() -> Iterator[Original]:
        missed, waiting = set[str](), list[Original]()
        for where, entry in read_entries(stream, name):
            missing = list[str]()
            if isinstance(entry, BibtexEntry):
                if _CONTAINER.fullmatch(entry.kind) or entry.key.lower() in missed:
                    parents.setdefault(entry.key.lower(), entry)
                missing = [parent for parent in _parents(entry) if parent not in parents]
                missed.update(missing)
            if missing:
                waiting.append((where, entry))
            else:
                yield where, entry
        yield from waiting

    return converted(in_order(), lambda entry: _record(entry, _with_inherited(entry, parents, set())))


def _parents(entry: BibtexEntry) -> list[str]:
    names = f"{entry.fields.get('xdata', '')},{entry.fields.get('crossref', '')}"
    return [key for each in names.lower().split(",") if (key := each.strip())]


def _with_inherited(
    entry: BibtexEntry, parents: Mapping[str, BibtexEntry], seen: MutableSet[str]
) -> Mapping[str, str]:
    values = {name: value for name, value in entry.fields.items() if value}
    for key in _parents(entry):
        if key not in parents or key in seen or len(seen) == _MOST_ANCESTORS:
            continue
        seen.add(key)
        parent = _with_inherited(parents[key], parents, seen)
        if parents[key].kind != "xdata":
            is_dated = _first(values, "year", "date")
            dates = {} if is_dated else {name: parent[name] for name in _DATES if name in parent}
            parent = {**dates, "booktitle": _first(values, *_VENUES) or _first(parent, *_VENUES, "title")}
        values = {**parent, **values}
    return values


def _record(entry: BibtexEntry, values: Mapping[str, str]) -> dict[str, Any]:
    if _NO_PUBLICATION.fullmatch(entry.kind):
        raise fields.unfit("a paper", f"@{entry.kind}", "left it out", "not a paper", is_fault=False)
    text, address = (partial(_first, values, clean=each) for each in (clean_bibtex, clean_address))
    title, subtitle = text("title"), text("subtitle")
    tags, collections = (
        [word for each in map(text, names) for word in each.split(";" if ";" in each else ",")]
        for names in (("keywords", "author_keywords", "mendeley-tags"), ("groups", "mendeley-groups"))
    )
    names = [name for each in _outside_braces(values.get("author", ""), _AND) if (name := each.strip())]
    others = bool(names) and has_others(names[-1])
    if others:
        names[-1:] = split_authors(names[-1])
    is_only = sum("," in name for name in names) == 1
    url = next(iter(address("url", "adsurl", "ee").split()), "")
    arxiv, acl = _arxiv(values, url), _ANTHOLOGY.search(url) if "acl" in url else None
    venue = _first(values, *_VENUES)
    macro = venue.strip("{} \t\r\n") if "\\" in venue else ""
    metadata = {
        "key": entry.key,
        "authors": [author for name in names for author in _people(name, is_only=is_only) if author],
        "et_al": others or None,
        **fields.dated(_joined_date(*(values.get(each, "") for each in _DATES))),
        "venue": JOURNALS.get(macro[1:].lower()) or text(*_VENUES),
        "categories": address("primaryclass", "eprintclass").split() if arxiv else [],
        "doi": doi(address("doi")) or (url if "doi.org/" in url else ""),
        "url": url,
        "ids": {"arxiv": arxiv, "acl": acl[1] if acl else "", "pmid": address("pmid")},
        "tags": tags,
        "collections": collections,
    }
    title = f"{title}: {subtitle}" if title and subtitle else title
    return fields.noted(fields.record(entry.key, title, text("abstract"), metadata), entry.repeated)


def _first(values: Mapping[str, str], *names: str, clean: Callable[[str], str] = str) -> str:
    return clean(next(filter(None, map(values.get, names)), ""))


@lru_cache(maxsize=1 << 10)
def _joined_date(whole: str, year: str, month: str, day: str) -> str:
    dates = [found for text in (whole, year) if (found := date(text))]
    if not dates or not month or len(dates[0]) > len("YYYY"):
        return max(dates, key=len, default="")
    month = clean_bibtex(month)
    number = _MONTH_NUMBER.fullmatch(month)
    return date(f"{dates[-1][:4]}{f'-{number[1]}-' if number else f' {month} '}{clean_bibtex(day)}")


def _arxiv(values: Mapping[str, str], url: str) -> str:
    address = partial(_first, values, clean=clean_address)
    is_arxiv = address("archiveprefix", "eprinttype").lower() == "arxiv"
    if number := _ARXIV.search(address(*(("eprint",) if is_arxiv else ()), "arxivid")):
        return number[1]
    for text in (url, *map(values.get, ("journal", "eprint", "number", "note", "howpublished"))):
        if text and "rxiv" in text.lower() and (number := _NAMED_ARXIV.search(text)):
            return number[1]
    return ""


@lru_cache(maxsize=1 << 14)
def _people(name: str, *, is_only: bool) -> tuple[str, ...]:
    name = IDENTIFIER.sub("", _DBLP_NUMBER.sub("", name))
    parts = name.split(",")
    if _MARKED.search(name):
        name = plain(name)
        if name.startswith("{") and len(_outside_braces(name, _EITHER)) == 1:
            return (clean_bibtex(name),)
        parts = _outside_braces(name, _COMMA)
        named = filter(None, map(_NAME_PART.match, parts))
        if values := {part[1].lower(): clean_bibtex(part[2]) for part in named}:
            family = f"{values.get('prefix', '')} {values.get('family', '')}"
            return (person_name(family, values.get("given", ""), values.get("suffix", "")),)
    parts = [part for each in parts if (part := clean_bibtex(each).strip())]
    is_list = "{" not in name and are_several(", ".join(parts), is_only=is_only)
    if is_list or len(parts) > 3 or ";" in name or " & " in name:
        return tuple(split_authors(clean_bibtex(name)))
    if len(parts) == 2:
        return (person_name(*parts),)
    if len(parts) == 3 or "{" not in name:
        return (read_name(", ".join(parts)),)
    words = [word for each in _outside_braces(name.strip(" ,"), _SPACE) if (word := clean_bibtex(each))]
    begin = next((i for i, word in enumerate(words[1:-1], 1) if word[0].islower()), len(words) - 1)
    return (person_name(" ".join(words[begin:]), " ".join(words[:begin])),) if words else ()


def _outside_braces(text: str, separator: re.Pattern[str]) -> list[str]:
    if "{" not in text:
        return separator.split(text)
    parts, begin, place, depth = list[str](), 0, 0, 0
    for match in separator.finditer(text):
        depth += text.count("{", place, match.start()) - text.count("}", place, match.start())
        place = match.start()
        if depth <= 0:
            parts.append(text[begin:place])
            begin = match.end()
    return [*parts, text[begin:]]


def read_entries(stream: io.BufferedReader, name: str) -> Iterator[Original]:
    """Yield each entry of a file with its place, or its error."""
    strings: dict[str, str] = {}
    first, block, size = 1, list[bytes](), 0
    for number, line in numbered_lines(stream, name):
        if block and _BLOCK.match(line):
            yield from _entries(b"".join(block), size, first, name, strings)
            first, block, size = number, [], 0
        size += len(line)
        if size <= MAX_ENTRY_BYTES or not block:
            block.append(line)
    yield from _entries(b"".join(block), size, first, name, strings)


def _entries(
    data: bytes, size: int, number: int, name: str, strings: MutableMapping[str, str]
) -> Iterator[Original]:
    where = f"{name}, line {number}"
    try:
        if size > MAX_ENTRY_BYTES:
            raise _broken(f"at most {MAX_ENTRY_BYTES >> 20} MiB of text", "more")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n")
        text = decode_text(data, where)
    except RecordError as error:
        yield where, error
        return
    found = list(_parsed(text, number, name, strings))
    if "\\" in text and any(isinstance(entry, RecordError) for _, entry in found):
        # For BibTeX all braces count; where they are not balanced so, those after a backslash do not.
        others = list(_parsed(text.replace("\\{", "\1").replace("\\}", "\2"), number, name, strings))
        found = found if any(isinstance(entry, RecordError) for _, entry in others) else others
    yield from found


def _broken(expected: str, found: str) -> RecordError:
    found = one_line(found.replace("`", "'"))
    return fields.unfit(expected, found, "mend or remove the entry", "a broken entry")


def _parsed(text: str, number: int, name: str, strings: MutableMapping[str, str]) -> Iterator[Original]:
    place, in_comment = 0, False  # whose end is not looked for

    def line(end: int) -> str:
        return f"line {number + text.count(chr(10), 0, end)}"

    while True:
        begin = _BEGIN.search(text, place)
        end = begin.start() + 1 if begin else len(text)
        if not in_comment and (stray := _STRAY.search(text, place, end)):
            found = "a % within it" if stray[0].endswith("%") else "a field without one"
            broken = _broken("the beginning of an entry", found)
            yield f"{name}, {line(stray.start())}", broken  # the entry's beginning is damaged
            return
        if begin is None:
            return
        place, kind = begin.end(), (begin[1] or "comment").lower()
        in_comment = kind in ("comment", "preamble") and (in_comment or begin[1] is not None)
        if kind in ("comment", "preamble"):
            continue
        try:
            entry, place = _entry(text, begin, strings)
            if _LOST.match(text, place):
                raise _BrokenError("as many closing braces as opening ones", "one more", place - 1)
        except _BrokenError as error:
            if kind != "string":
                expected, found, there = error.args
                key = _KEY["}"].match(text, begin.end())
                broken = _broken(expected, f"{found} ({line(there)})")
                broken.names = (key[1].strip(),) if key else ()
                yield f"{name}, {line(begin.start(1))}", broken
            return  # what follows may be parts of this entry
        if kind == "string":
            strings.update(entry.fields)
            continue
        yield f"{name}, {line(begin.start(1))}", entry


class _BrokenError(Exception):
    """An entry that cannot be read: what was expected, what was found, and the place in the text."""


def _entry(text: str, begin: re.Match[str], strings: MutableMapping[str, str]) -> tuple[BibtexEntry, int]:
    """Return the entry that begins there, and the place after it; raises _BrokenError where it has no end."""
    kind, closer, place = begin[1].lower(), "}" if begin[2] == "{" else ")", begin.end()
    key, values, twice = "", dict[str, str](), set[str]()
    if kind != "string":
        match = _KEY[closer].match(text, place)
        key, end = (match[1].strip(), match.end()) if match else ("", place)
        if after := _CLOSED_AT_ONCE.match(text, end):  # as Taylor & Francis write entries
            place = after.end()
        elif text.startswith((",", closer), end):
            place = end + text.startswith(",", end)
        elif text.startswith("=", end) and len(key.split()) < 2:
            key = ""  # the first field stands in its place
        else:
            raise _unexpected(text, end, "a comma after the key")
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
                    if "\1" in text or "\2" in text:
                        values = {name: value.translate(_SHOWN) for name, value in values.items()}
                    return BibtexEntry(kind, key, values, sorted(twice)), place + 1
                raise _unexpected(text, place, "a field or a closing brace")
            name = field[1]
            value, place = _value(text, place, strings)
            is_next = not text[text.rfind("\n", 0, place) + 1 : place].strip() and _LOST.match(text, place)
            if not (text.startswith((",", closer), place) or is_next):
                raise _unexpected(text, place, f"a comma after '{name}'")
        name = name.lower()
        if not values.get(name):
            values[name] = value
        elif value and value != values[name] and name in _ONCE:
            twice.add(name)


def _value(text: str, place: int, strings: MutableMapping[str, str]) -> tuple[str, int]:
    """Return a value and its end, cut at the longest allowed: strings of strings could grow at will."""
    value = ""
    while True:
        begin = place
        if text.startswith(("{", '"'), place):
            is_quoted = text[begin] == '"'
            depth = 0 if is_quoted else 1
            for sign in (_BRACE_OR_QUOTE if is_quoted else _BRACE).finditer(text, begin + 1):
                depth += {"{": 1, "}": -1}.get(sign[0], 0)
                if depth == 0 and (sign[0] == '"' or not is_quoted):
                    break
            else:
                mark = "quotation mark" if is_quoted else "brace"
                raise _BrokenError(f"a closing {mark}", "none", begin)
            value += text[begin + 1 : sign.start()]
            place = sign.end()
        elif part := _PART.match(text, place):
            place = part.end()
            value += strings.get(part[0].lower(), part[0])
        value = value[: MAX_ABSTRACT_CHARS + 1]
        after = _AFTER_PART.match(text, place)
        place = after.end() if after else place
        if after is None or after[1] is None:
            return value, place


def _unexpected(text: str, place: int, expected: str) -> _BrokenError:
    found = text[place : place + 40].strip().partition("\n")[0].translate(_SHOWN)
    return _BrokenError(expected, repr(found) if found else "the end of the entry", place)
