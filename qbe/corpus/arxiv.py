"""arXiv's metadata snapshot: JSON lines with ``id``, ``title``, ``abstract``, ``categories``, ``versions``.

The snapshot is ``arxiv-metadata-oai-snapshot.json``, published by Cornell University under CC0.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate
from functools import cache
from typing import Any

from qbe.corpus.authors import person_name
from qbe.corpus.decode import decode_record, decode_text
from qbe.corpus.fields import NOT_THIS_FORMAT, doi, record
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_title, without_latex
from qbe.corpus.reading import Entry, Reading, converted
from qbe.corpus.streams import numbered_lines
from qbe.errors import RecordError

_CATEGORIES = re.compile(rb'"categories"\s*:\s*"([^"\\]*)"')
_AND = re.compile(r",\s*(?:and\s+)?|\s+and\s+")
_ABSTRACT_PAGE = "https://arxiv.org/abs/"


def recognizes(head: Head) -> bool:
    """Whether the first record is one of the snapshot."""
    return head.has("id", "title", "abstract", "categories", "versions")


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    r"""The records of a snapshot; those of other categories are left out before they are parsed.

    >>> line = b'{"id": "0704.1", "title": "On\\n fish", "abstract": "Fish swim.\\n", "categories": "q-bio"}'
    >>> [entry] = read(io.BufferedReader(io.BytesIO(line)), "snapshot.json", Reading())
    >>> entry.record["title"], entry.record["metadata"]["categories"]
    ('On fish', ['q-bio'])
    """
    return converted(_lines(stream, name, reading), _record)


def _lines(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[tuple[str, bytes]]:
    """The lines with their places, without blank ones and those of other categories."""
    is_kept = cache(lambda categories: reading.keeps({"categories": categories.decode(errors="replace")}))
    for number, line in numbered_lines(stream, name):
        if reading.categories and (match := _CATEGORIES.search(line)) and not is_kept(match[1]):
            continue
        if not line.isspace():
            yield f"{name}, line {number}", line


def _record(line: bytes, where: str) -> dict[str, Any]:
    return to_record(decode_record(decode_text(line, where).rstrip(), where), where)


def to_record(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a paper; its date is that of its first version. Raises RecordError for other types."""
    try:
        metadata: dict[str, Any] = {
            "authors": _authors(source),
            "categories": (source.get("categories") or "").split(),
            "date": _first_date(source),
            "venue": source.get("journal-ref"),
            "doi": doi(source.get("doi") or ""),
            "url": f"{_ABSTRACT_PAGE}{source['id']}",
        }
        return record(
            source["id"], clean_title(source["title"]), clean_abstract(source["abstract"] or ""), metadata
        )
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise RecordError(
            f"{where}: expected a record of arXiv's snapshot with id, title and abstract, found "
            f"{type(error).__name__} {error}; mend or remove it",
            NOT_THIS_FORMAT,
        ) from None


def _authors(source: Mapping[str, Any]) -> list[str]:
    parsed = source.get("authors_parsed")
    if not parsed:
        names = _AND.split(source.get("authors") or "")
        return [without_latex(name).strip() for name in names if name]
    return [_name(*each[:3]) for each in parsed]


def _name(family: str, given: str, suffix: str = "") -> str:
    family, given, suffix = without_latex(family), without_latex(given), without_latex(suffix)
    if family.isalpha() and given[:1].isupper() and " " not in given and not suffix:  # most, faster
        return f"{given} {family}"
    return person_name(family, given, suffix)


def _first_date(source: Mapping[str, Any]) -> str | None:
    versions = source.get("versions")
    if versions:
        parsed = parsedate(versions[0]["created"])
        if parsed:
            return f"{parsed[0]:04}-{parsed[1]:02}-{parsed[2]:02}"
    updated: str | None = source.get("update_date")
    return updated
