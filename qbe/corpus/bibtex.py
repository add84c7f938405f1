"""BibTeX and BibLaTeX, as reference managers and the ACL Anthology export them.

The formats are described in Oren Patashnik's "BibTeXing" and in the manual of the LaTeX package biblatex;
the package bibtexparser finds the fields of an entry. ``crossref`` is ignored.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any

from qbe.corpus.decode import decode_text
from qbe.corpus.entry import Entry
from qbe.corpus.fields import MONTHS, doi, present, year
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_bibtex, clean_title, without_braces, without_latex
from qbe.corpus.reading import Reading
from qbe.corpus.record import MAX_ABSTRACT_CHARS
from qbe.corpus.streams import numbered_lines
from qbe.errors import CorpusError, RecordError

MAX_ENTRY_BYTES = 4 << 20
"""A longer entry is an error instead of filling the memory; real ones are far shorter."""

_BOM = b"\xef\xbb\xbf"
_BLOCK = re.compile(rb"[ \t]*@\w*[ \t]*[{(]")
_KNOWN_BLOCK = re.compile(
    r"^[ \t]*@(?:article|book|booklet|collection|comment|conference|data(?:set)?|inbook|incollection|"
    r"inproceedings|manual|mastersthesis|misc|online|phdthesis|preamble|proceedings|report|software|string|"
    r"techreport|thesis|unpublished)[ \t]*[{(]",
    re.IGNORECASE | re.MULTILINE,
)
_IGNORED = ("@comment", "@preamble")
_MARK = re.compile(r'\{"\}|(?<!\\)[{}"]|#')
_DATE = re.compile(r"\d{4}(?:-\d{2}(?:-\d{2})?)?")
_ARXIV = re.compile(r"(\d{4}\.\d{4,5}|[a-z-]{1,20}(?:\.[A-Za-z-]{1,20})?/\d{7})(?:v\d+)?")
_ANTHOLOGY = re.compile(r"\b(?:aclanthology\.org|aclweb\.org/anthology)/([A-Za-z0-9.-]+?)(?:\.pdf)?/?$")


def recognizes(head: Head) -> bool:
    """Whether an entry of BibTeX begins somewhere; without one, whether the suffix says so."""
    if head.text.startswith(("{", "[", "<")):
        return False
    return _KNOWN_BLOCK.search(head.text) is not None or head.suffix in (".bib", ".bibtex")


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    r"""The entries of a file, with the values of ``@string`` in place of their names.

    Raises CorpusError for text that is not UTF-8: most entries of such a file would be damaged.

    >>> text = b'@string{jml = "Fish Letters"}\n@article{a9, title = {On {F}ish}, journal = jml # { B}}'
    >>> [entry] = read(io.BufferedReader(io.BytesIO(text)), "refs.bib", Reading())
    >>> entry.where, entry.record["paper_id"], entry.record["title"], entry.record["metadata"]
    ('refs.bib, line 2', 'a9', 'On Fish', {'venue': 'Fish Letters B'})
    """
    del reading
    strings: dict[str, str] = {}
    for number, data in _blocks(stream, name):
        where = f"{name}, line {number}"
        if data is None:
            yield Entry(where, _broken(where, f"more than {MAX_ENTRY_BYTES >> 20} MiB of text"))
            continue
        try:
            text = decode_text(data, where)
        except RecordError as error:
            raise CorpusError(str(error)) from None
        yield from _entries(text, number, name, strings)


def _blocks(stream: io.BufferedReader, name: str) -> Iterator[tuple[int, bytes | None]]:
    """Text from one line that begins an entry to the next, with its line; None for text that is too long."""
    first, size, lines = 1, 0, list[bytes]()
    for number, line in numbered_lines(stream, name):
        if number == 1:
            line = line.removeprefix(_BOM)
        if _BLOCK.match(line) and lines:
            yield first, b"".join(lines) if size <= MAX_ENTRY_BYTES else None
            first, size, lines = number, 0, []
        size += len(line)
        if size <= MAX_ENTRY_BYTES or not lines:
            lines.append(line)
    if lines:
        yield first, b"".join(lines) if size <= MAX_ENTRY_BYTES else None


def _entries(text: str, number: int, name: str, strings: MutableMapping[str, str]) -> Iterator[Entry]:
    """The entries of a block, usually one; what ``@string`` defines is added to the strings."""
    from bibtexparser import model

    for block in _parsed(text):
        where = f"{name}, line {number + (block.start_line or 0)}"
        if isinstance(block, model.DuplicateBlockKeyBlock):
            block = block.ignore_error_block
        if isinstance(block, model.String):
            strings[block.key.lower()] = _value(block.value, strings)
        elif isinstance(block, model.DuplicateFieldKeyBlock):
            yield Entry(where, _duplicate_fields(where, block.duplicate_keys))
        elif isinstance(block, model.ParsingFailedBlock):
            if not (block.raw or "").lower().startswith(_IGNORED):
                reason = getattr(block.error, "abort_reason", None) or str(block.error)
                yield Entry(where, _broken(where, f"none ({reason})"))
                return  # what follows may be parts of this entry
        elif isinstance(block, model.Entry) and block.entry_type:
            try:
                record = _record(block.key, block.fields, strings, where)
            except RecordError as error:
                yield Entry(where, error)
                continue
            yield Entry(where, record)


def _parsed(text: str) -> list[Any]:
    """The blocks that bibtexparser finds, values with their braces or quotation marks."""
    from bibtexparser.entrypoint import parse_string

    # What is wrong with a block is in the block, too.
    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)
    return list(parse_string(text, parse_stack=[]).blocks)


def _record(key: str, fields: Iterable[Any], strings: Mapping[str, str], where: str) -> dict[str, Any]:
    """The record of an entry; raises RecordError where it has no key, no title, or a field twice."""
    raw: dict[str, str] = {}
    for field in fields:
        if field.key.lower() in raw:
            raise _duplicate_fields(where, [field.key])
        raw[field.key.lower()] = field.value
    if not key:
        raise RecordError(
            f"{where}: expected a key at the beginning of the entry, found none; add one", "no paper_id"
        )
    value = partial(_field, raw, strings)
    title = clean_title(clean_bibtex(value("title")))
    if not title:
        raise RecordError(f"{where}: expected a title, found none; add it or remove the entry", "no title")
    subtitle = clean_title(clean_bibtex(value("subtitle")))
    url = next(iter(_verbatim(value("url")).split()), "")
    date = _date(value("date"), value("year"), value("month"), value("day"))
    arxiv = _arxiv(value)
    acl = _ANTHOLOGY.search(url)
    metadata = {
        "authors": _authors(value("author")),
        "year": year(date),
        "date": date if len(date) > len("YYYY") else "",
        "venue": clean_title(clean_bibtex(value("journal") or value("journaltitle") or value("booktitle"))),
        "categories": _verbatim(value("primaryclass") or value("eprintclass")).split() if arxiv else [],
        "doi": doi(_verbatim(value("doi"))) or (doi(url) if "doi.org/" in url else ""),
        "url": url,
        "ids": present({"arxiv": arxiv, "acl": acl[1] if acl else "", "pmid": _verbatim(value("pmid"))}),
    }
    return {
        "paper_id": key,
        "title": f"{title}: {subtitle}" if subtitle else title,
        "abstract": clean_abstract(clean_bibtex(value("abstract"))) or None,
        "metadata": present(metadata),
    }


def _field(raw: Mapping[str, str], strings: Mapping[str, str], name: str) -> str:
    return _value(raw[name], strings).strip() if name in raw else ""


def _value(raw: str, strings: Mapping[str, str]) -> str:
    """The text of a value: parts in braces or quotation marks, numbers and names of strings, joined by #.

    It is cut beyond what a paper may have: names of names of strings could make it long at will.
    """
    text = ""
    for part in map(str.strip, _parts(raw)):
        is_enclosed = part[:1] in ("{", '"') and len(part) > 1
        text += part[1:-1] if is_enclosed else strings.get(part.lower(), part)
        if len(text) > MAX_ABSTRACT_CHARS:
            return text[: MAX_ABSTRACT_CHARS + 1]
    return text


def _parts(raw: str) -> Iterator[str]:
    """The parts of a value between those # that stand neither in braces nor in quotation marks."""
    begin = depth = 0
    is_quoted = False
    for mark in _MARK.finditer(raw) if "#" in raw else ():
        match mark[0]:
            case '"' if depth == 0:
                is_quoted = not is_quoted
            case "{" if not is_quoted:
                depth += 1
            case "}" if not is_quoted:
                depth -= 1
            case "#" if not is_quoted and depth == 0:
                yield raw[begin : mark.start()]
                begin = mark.end()
    yield raw[begin:]


def _verbatim(text: str) -> str:
    """An address or a number without escapes."""
    return without_braces(without_latex(text)).strip()


def _authors(text: str) -> list[str]:
    """Names in the order Given von Family Jr, without "others"."""
    from bibtexparser.middlewares import names

    authors = []
    for name in names.split_multiple_persons_names(text):
        try:
            ordered = names.parse_single_name_into_parts(name).merge_first_name_first
        except names.InvalidNameError:
            ordered = name
        authors.append(" ".join(clean_title(clean_bibtex(ordered)).split()))
    return [author for author in authors if author and author.lower() != "others"]


def _date(date: str, published: str, month: str, day: str) -> str:
    """The date as YYYY-MM-DD, as much of it as is known; '' without a year."""
    match = _DATE.match(date)
    if match and len(match[0]) > len("YYYY"):
        return match[0]
    known = year(published) or year(date)
    if known is None:
        return ""
    month = without_braces(month)
    name = re.search("|".join(MONTHS), month.lower())
    numbers = re.findall(r"\d+", month, re.ASCII)
    if name:
        number = MONTHS.index(name[0]) + 1
        day = day or (numbers[0] if len(numbers) == 1 else "")
    else:
        number = int(numbers[0][:4]) if numbers else 0
    if not 1 <= number <= 12:
        return f"{known:04}"
    is_day = re.fullmatch(r"0?[1-9]|[12]\d|3[01]", day, re.ASCII)
    return f"{known:04}-{number:02}" + (f"-{int(day):02}" if is_day else "")


def _arxiv(value: partial[str]) -> str:
    """The number of a preprint of arXiv; '' where the entry names none."""
    archive = value("archiveprefix") or value("eprinttype")
    eprint = value("eprint") if _verbatim(archive).lower() == "arxiv" else value("arxivid")
    number = _ARXIV.search(_verbatim(eprint))
    return number[1] if number else ""


def _broken(where: str, content: str) -> RecordError:
    content = "".join(each if each.isprintable() else " " for each in content.replace("`", "'")[:200])
    content = " ".join(content.split())
    return RecordError(
        f"{where}: expected an entry with fields in balanced braces or quotation marks, found {content}; "
        "mend or remove it",
        "a broken entry",
    )


def _duplicate_fields(where: str, names: Iterable[str]) -> RecordError:
    keys = ", ".join(ascii(name[:40]) for name in sorted(names)[:5])
    return RecordError(
        f"{where}: expected each field once, found {keys} again; remove all but one",
        "a field that occurs twice",
    )
