"""CSL-JSON, as Zotero, Better BibTeX, pandoc and doi.org write it, and Zotero's own items in JSON.

The schemas are ``csl-data.json`` of the Citation Style Language, and that of items in Zotero's Web API.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus import fields
from qbe.corpus.authors import person_name
from qbe.corpus.entry import Entry, converted
from qbe.corpus.head import Head, head_of
from qbe.corpus.jsonarray import json_objects
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Reading
from qbe.errors import RecordError

_ITEMS = re.compile(r'\{.*?"items"\s*:\s*\[\s*(?=\{)', re.DOTALL)
_OF_CSL = re.compile(
    r'"itemType"\s*:|"type"\s*:\s*"(?:article-(?:journal|magazine|newspaper)|paper-conference|review-book)"|"(?:date-parts|container-title|citation-key|issued)"\s*:|"author"\s*:\s*\[\s*\{\s*'
    r'"(?:family|given|literal|(?:non-)?dropping-particle)"'
)
"""What an item has beside what many formats have."""

_OTHERS = re.compile(r'"(?:display_name|paper_id|paperId)"|"title"\s*:\s*\[')
_URL = re.compile(r"https?://[^/]+/")
_ARXIV = re.compile(r"arXiv:\s*(\S+?)(?:v\d+)?(?:\s|$)", re.IGNORECASE)
_KEY = re.compile(r"^\s*Citation Key:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_NO_PAPERS = ("attachment", "note", "annotation")
"""Types of Zotero's items that belong to others."""


def recognizes(head: Head) -> bool:
    """Whether the text is an item or a list of items, by what only these have."""
    text = head.text
    return text.startswith(("[", "{")) and bool(_OF_CSL.search(text)) and not _OTHERS.search(text)


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The items of an array, of an object with ``items``, or one by one.

    >>> item = b'{"id": "http://zotero.org/users/1/items/AB", "title": "On fish", "DOI": "10.1234/A"}'
    >>> [entry] = read(io.BufferedReader(io.BytesIO(b"[%s]" % item)), "library.json", Reading())
    >>> entry.where, entry.record["paper_id"], entry.record["metadata"]
    ('library.json, item 1', 'AB', {'doi': '10.1234/a'})
    """
    del reading
    text = head_of(stream, name).text
    is_list = text.startswith("{") and _ITEMS.match(text) is not None
    return converted(json_objects(stream, name, ("items",) if is_list else None), to_record)


def to_record(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of an item; raises RecordError without title, and for types that the schema lacks."""
    item = fields.mapping(item, "data", where) or item
    if "itemType" in item:
        item = _of_zotero(item, where)
    title = clean_title(fields.text(item, "title", where))
    if not title:
        raise RecordError(f"{where}: expected a title, found none; add it or remove the item", "no title")
    noted = _KEY.search(str(item.get("note") or ""))  # in Zotero's field Extra
    key = fields.text(item, "citation-key", where).strip() or (noted[1] if noted else "")
    date = fields.date_of_parts(item.get("issued"))
    metadata = {
        "authors": [_author(author, where) for author in fields.objects(item, "author", where)],
        "year": fields.year(date),
        "date": date if len(date) > len("YYYY") else "",
        "venue": plain(fields.text(item, "container-title", where)),
        "doi": fields.doi(fields.text(item, "DOI", where)),
        "url": fields.text(item, "URL", where).strip(),
        "ids": _ids(item),
        "key": key,
        "tags": _tags(item.get("keyword")),
    }
    return {
        "paper_id": key or _paper_id(item, where),
        "title": title,
        "abstract": clean_abstract(fields.text(item, "abstract", where)) or None,
        "metadata": fields.present(metadata),
    }


def _of_zotero(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """An item of Zotero's as one of CSL; raises RecordError for what belongs to others."""
    kind = fields.text(item, "itemType", where)
    if kind in _NO_PAPERS:
        raise RecordError(f"{where}: expected a paper, found an {kind}", "not a paper", is_fault=False)
    creators = fields.objects(item, "creators", where)
    authors = [each for each in creators if each.get("creatorType") in ("author", None)] or creators
    venues = ("publicationTitle", "bookTitle", "proceedingsTitle", "conferenceName")
    return {
        "id": item.get("key") or item.get("itemKey"),
        "citation-key": item.get("citationKey") or item.get("citekey"),
        "title": item.get("title") or item.get("caseName") or item.get("subject"),
        "abstract": item.get("abstractNote"),
        "author": [
            {"family": each.get("lastName"), "given": each.get("firstName"), "literal": each.get("name")}
            for each in authors
        ],
        "issued": item.get("date"),
        "container-title": next((item[name] for name in venues if item.get(name)), None),
        "DOI": item.get("DOI"),
        "URL": item.get("url"),
        "note": item.get("extra"),
        "number": item.get("archiveID"),
        "keyword": [each.get("tag") for each in fields.objects(item, "tags", where)],
    }


def _paper_id(item: Mapping[str, Any], where: str) -> str | None:
    """The id, of an address its DOI or its last part; None where there is none."""
    value = item.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise fields.wrong_type(where, "id", "a string or a number", value)
    paper_id = str(value if value is not None else "").strip().removesuffix(".0")
    if _URL.match(paper_id):
        paper_id = fields.doi(paper_id) or paper_id.rstrip("/").rpartition("/")[2]
    return paper_id or None


def _author(author: Mapping[str, Any], where: str) -> str:
    dropping, other, family, given, suffix = (
        plain(fields.text(author, f"{part}", where))
        for part in ("dropping-particle", "non-dropping-particle", "family", "given", "suffix")
    )
    family = " ".join(filter(None, (dropping, other, family)))
    return person_name(family, given, suffix) or plain(fields.text(author, "literal", where))


def _tags(keyword: Any) -> list[str]:
    """Keywords, which may be one text with commas or semicolons."""
    words = re.split("[;,]", keyword) if isinstance(keyword, str) else keyword
    texts = (plain(word) for word in words if isinstance(word, str)) if isinstance(words, list) else ()
    return [word for word in dict.fromkeys(texts) if word]


def _ids(item: Mapping[str, Any]) -> dict[str, str]:
    """The paper's numbers in other collections."""
    number = _ARXIV.match(str(item.get("number") or ""))
    ids = {"arxiv": number[1] if number else "", "pmid": item.get("PMID"), "pmcid": item.get("PMCID")}
    return {name: str(value).strip() for name, value in ids.items() if value and isinstance(value, str | int)}
