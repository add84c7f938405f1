"""CSL-JSON, as Zotero, Better BibTeX, pandoc and doi.org write it, and Zotero's own items in JSON.

The schemas are ``csl-data.json`` of the Citation Style Language, and that of items in Zotero's Web API.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus.authors import person_name
from qbe.corpus.decode import json_objects
from qbe.corpus.fields import Fields, date_of_parts, dated, doi, no_title, not_a_paper, record, wrong_type
from qbe.corpus.head import Head, head_of
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Entry, Reading, converted

_ITEMS = re.compile(r'\{.*?"items"\s*:\s*\[\s*(?=\{)', re.DOTALL)
_OF_CSL = re.compile(
    r'"itemType"\s*:|"type"\s*:\s*"(?:article-(?:journal|magazine|newspaper)|paper-conference|review-book)"|"(?:date-parts|container-title|citation-key|issued)"\s*:|"author"\s*:\s*\[\s*\{\s*'
    r'"(?:family|given|literal|(?:non-)?dropping-particle)"'
)
"""What an item has and other formats lack."""

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


def to_record(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of an item; raises RecordError without title, and for types that the schema lacks."""
    source = Fields(source, where).object("data") or source
    if "itemType" in source:
        source = _of_zotero(source, Fields(source, where), where)
    item = Fields(source, where)
    title = clean_title(item.text("title"))
    if not title:
        raise no_title(where, is_fault=True)
    noted = _KEY.search(str(source.get("note") or ""))  # in Zotero's field Extra
    key = item.text("citation-key").strip() or (noted[1] if noted else "")
    metadata = {
        "authors": [_author(Fields(author, where)) for author in item.objects("author[]")],
        **dated(date_of_parts(source.get("issued"))),
        "venue": plain(item.text("container-title")),
        "doi": doi(item.text("DOI")),
        "url": item.text("URL").strip(),
        "ids": _ids(source),
        "key": key,
        "tags": _tags(source.get("keyword")),
    }
    return record(key or _paper_id(source, where), title, clean_abstract(item.text("abstract")), metadata)


def _of_zotero(item: Mapping[str, Any], fields: Fields, where: str) -> dict[str, Any]:
    """An item of Zotero's as one of CSL; raises RecordError for what belongs to others."""
    if (kind := fields.text("itemType")) in _NO_PAPERS:
        raise not_a_paper(where, f"an {kind}")
    creators = fields.objects("creators[]")
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
        "keyword": [each.get("tag") for each in fields.objects("tags[]")],
    }


def _paper_id(item: Mapping[str, Any], where: str) -> str | None:
    """The id, of an address its DOI or its last part; None where there is none."""
    value = item.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise wrong_type(where, "id", "a string or a number", value)
    paper_id = str(value if value is not None else "").strip().removesuffix(".0")
    if _URL.match(paper_id):
        paper_id = doi(paper_id) or paper_id.rstrip("/").rpartition("/")[2]
    return paper_id or None


def _author(author: Fields) -> str:
    particles = ("dropping-particle", "non-dropping-particle", "family")
    family = " ".join(filter(None, (plain(author.text(part)) for part in particles)))
    name = person_name(family, plain(author.text("given")), plain(author.text("suffix")))
    return name or plain(author.text("literal"))


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
