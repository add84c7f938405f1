"""Crossref's works: JSON lines, the public data file's ``items``, and answers of the REST API.

The schema is Crossref's "Metadata API JSON Format" (api_format.md of its documentation of the REST API);
abstracts are in JATS.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus.authors import person_name
from qbe.corpus.decode import json_objects
from qbe.corpus.fields import Fields, date_of_parts, dated, doi, no_title, record
from qbe.corpus.head import Head, head_of
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Entry, Reading, converted
from qbe.errors import CorpusError

_DOI = re.compile(r'"DOI"\s*:\s*"')
_LIST = re.compile(r'"(?:container-)?title"\s*:\s*\[')
"""The titles of CSL-JSON, which is similar, are strings."""

_ITEMS = re.compile(r'"items"\s*:\s*\[')
_MESSAGE = re.compile(r'"message"\s*:\s*\{')
_HEADING = re.compile(r"<(?:jats:)?title>([^<]{1,200})</(?:jats:)?title>")
_TWICE = re.compile(r"(?<=tex-math>)\s*<mml:math\b")
"""Where a formula in MathML begins that stands in LaTeX before it."""


def recognizes(head: Head) -> bool:
    """Whether the first record is a work, or the text a list of works."""
    text = head.text
    if not text.startswith(("{", "[")) or head.has("paper_id"):
        return False
    return _DOI.search(text) is not None and _LIST.search(text) is not None


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The works of a file or of an answer; those of other subjects are left out.

    >>> work = b'{"DOI": "10.1234/ABC", "title": ["On fish"], "issued": {"date-parts": [[2019, 5]]}}'
    >>> data = b'{"items": [%s]}' % work
    >>> [entry] = read(io.BufferedReader(io.BytesIO(data)), "0.json", Reading())
    >>> entry.where, entry.record["paper_id"], entry.record["metadata"]["date"]
    ('0.json, item 1', '10.1234/abc', '2019-05')
    """
    works = json_objects(stream, name, _path_of_items(head_of(stream, name).text))
    return converted(works, _record, reading)


def _record(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a work, or of an answer with one; raises RecordError for types that the schema lacks."""
    if "message" in source and "DOI" not in source:
        source = Fields(source, where).object("message")
    if "items" in source:
        raise CorpusError(f"{where}: expected a work, found a list of works within a work; mend the file")
    work = Fields(source, where)
    title = _title(work)
    if not title:
        raise no_title(where)
    own_doi = work.text("DOI").strip().lower()
    cites = map(doi, work.texts("reference[].DOI"))
    metadata = {
        "authors": _authors(work, where),
        **dated(date_of_parts(source.get("issued")) or date_of_parts(source.get("published"))),
        "venue": plain(work.text("container-title[]")),
        "categories": work.texts("subject[]"),
        "doi": own_doi,
        "url": work.text("URL"),
        "cites": [each for each in dict.fromkeys(cites) if each],
    }
    return record(own_doi, title, _abstract(work.text("abstract")), metadata)


def _path_of_items(text: str) -> tuple[str, ...] | None:
    """Where the works are if the text, cut somewhere, is one object with a list of them."""
    items = _ITEMS.search(text)
    if not text.startswith("{") or items is None or _DOI.search(text, 0, items.start()):
        return None
    return ("message", "items") if _MESSAGE.search(text, 0, items.start()) else ("items",)


def _title(work: Fields) -> str:
    """The title with the subtitle, unless the title has it already; further ones are translations."""
    title, subtitle = clean_title(work.text("title[]")), clean_title(work.text("subtitle[]"))
    if not subtitle or subtitle.lower() in title.lower():
        return title
    return f"{title.rstrip(' :')}: {subtitle.lstrip(': ')}" if title else subtitle


def _abstract(jats: str) -> str:
    """The text of an abstract, with a colon after each heading and each formula once."""
    text, *others = _TWICE.split(jats)
    text += "".join(other.partition("</mml:math>")[2] for other in others)
    return clean_abstract(_HEADING.sub(_with_colon, text))


def _with_colon(heading: re.Match[str]) -> str:
    words = heading[1].strip(" \t\n\r.:")
    return f" {words}: " if words else " "


def _authors(work: Fields, where: str) -> list[str]:
    """Names of people and of organizations."""
    authors = (Fields(each, where) for each in work.objects("author[]"))
    names = (
        person_name(*(plain(author.text(part)) for part in ("family", "given", "suffix")))
        or plain(author.text("name"))
        for author in authors
    )
    return [name for name in names if name]
