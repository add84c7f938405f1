"""CSL-JSON, as Zotero and Better BibTeX export it: an array of items.

The schema is ``csl-data.json`` of the Citation Style Language.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus import fields
from qbe.corpus.entry import Entry, converted
from qbe.corpus.head import Head
from qbe.corpus.jsonarray import array_items
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Reading
from qbe.errors import RecordError

_TYPES = re.compile(
    r"article(?:-journal|-magazine|-newspaper)?|bill|book|broadcast|chapter|classic|collection|dataset|document|"
    r"entry(?:-dictionary|-encyclopedia)?|event|figure|graphic|hearing|interview|legal_case|legislation|"
    r"manuscript|map|motion_picture|musical_score|pamphlet|paper-conference|patent|performance|periodical|"
    r"personal_communication|post(?:-weblog)?|regulation|report|review(?:-book)?|software|song|speech|"
    r"standard|thesis|treaty|webpage"
)
"""What an item may be; Crossref's types have other names."""

_TYPE = re.compile(r'"type"\s*:\s*"([^"]*)"')
_OTHERS = ('"display_name"', '"paper_id"', '"paperId"')
_TITLES = re.compile(r'"title"\s*:\s*\[')
_NAME = ("given", "dropping-particle", "non-dropping-particle", "family", "suffix")
_URL = re.compile(r"https?://[^/]+/")
_DATE = re.compile(r"\d{4}(?:-\d{2}(?:-\d{2})?)?", re.ASCII)
_ARXIV = re.compile(r"arXiv:\s*(\S+?)(?:v\d+)?(?:\s|$)", re.IGNORECASE)


def recognizes(head: Head) -> bool:
    """Whether the text is an array whose first item has a type of CSL."""
    text = head.text
    if not text.startswith("[") or any(name in text for name in _OTHERS) or _TITLES.search(text):
        return False
    match = _TYPE.search(text)
    return match is not None and _TYPES.fullmatch(match[1]) is not None


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The items of an array; one without a key and an id is called by its DOI.

    >>> item = b'{"id": "http://zotero.org/users/1/items/AB", "title": "On fish", "DOI": "10.1234/A"}'
    >>> [entry] = read(io.BufferedReader(io.BytesIO(b"[%s]" % item)), "library.json", Reading())
    >>> entry.where, entry.record["paper_id"], entry.record["metadata"]
    ('library.json, item 1', 'AB', {'doi': '10.1234/a'})
    """
    del reading
    return converted(array_items(stream, name, ()), to_record)


def to_record(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of an item; raises RecordError without title or id, and for types that the schema lacks."""
    title = clean_title(fields.text(item, "title", where))
    if not title:
        raise RecordError(f"{where}: expected a title, found none; add it or remove the item", "no title")
    doi = fields.doi(fields.text(item, "DOI", where))
    date = _date(fields.mapping(item, "issued", where), where)
    metadata = {
        "authors": [_author(author, where) for author in fields.objects(item, "author", where)],
        "year": fields.year(date),
        "date": date if len(date) > len("YYYY") else "",
        "venue": plain(fields.text(item, "container-title", where)),
        "doi": doi,
        "url": fields.text(item, "URL", where).strip(),
        "ids": _ids(item),
    }
    return {
        "paper_id": _paper_id(item, doi, where),
        "title": title,
        "abstract": clean_abstract(fields.text(item, "abstract", where)) or None,
        "metadata": fields.present(metadata),
    }


def _paper_id(item: Mapping[str, Any], doi: str, where: str) -> str:
    """The key, or the id: of an address its DOI or its last part, without white space."""
    value = item.get("citation-key") or item.get("id")
    if type(value) is int:
        return str(value)
    if value is not None and not isinstance(value, str):
        raise fields.wrong_type(where, "id", "a string or a number", value)
    paper_id = "_".join((value or "").split())
    if _URL.match(paper_id):
        paper_id = fields.doi(paper_id) or paper_id.rstrip("/").rpartition("/")[2]
    if not paper_id and not doi:
        raise RecordError(f"{where}: expected an id, found none; add it or remove the item", "no paper_id")
    return paper_id or doi


def _author(author: Mapping[str, Any], where: str) -> str:
    parts = [fields.text(author, part, where) for part in _NAME]
    return plain(" ".join(parts)) or plain(fields.text(author, "literal", where))


def _date(issued: Mapping[str, Any], where: str) -> str:
    """The date as YYYY-MM-DD, as much of it as is known; '' without a year."""
    begin: Any = next(iter(fields.items(issued, "date-parts", where)), None)
    known: list[str] = []
    for part, last in zip(begin if isinstance(begin, list) else [], (9999, 12, 31), strict=False):
        text = str(part).strip() if isinstance(part, str | int) else ""
        if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= last):
            break
        known.append(text.zfill(2 if known else 4))
    if known:
        return "-".join(known)
    texts = (issued.get(name) for name in ("edtf", "raw", "literal"))
    matches = (_DATE.match(text) for text in texts if isinstance(text, str))
    return next((match[0] for match in matches if match), "")


def _ids(item: Mapping[str, Any]) -> dict[str, str]:
    """The paper's numbers in other collections."""
    number = _ARXIV.match(str(item.get("number") or ""))
    return fields.present(
        {
            "arxiv": number[1] if number else "",
            "pmid": _number(item.get("PMID")),
            "pmcid": _number(item.get("PMCID")),
        }
    )


def _number(value: Any) -> str:
    return str(value).strip() if isinstance(value, str | int) else ""
