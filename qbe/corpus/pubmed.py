"""PubMed's XML: ``PubmedArticleSet``, of the yearly baseline, the update files, and the answers of efetch.

The schema is NLM's PubMed DTD (``pubmed_250101.dtd``), described in NLM's "MEDLINE PubMed XML Element
Descriptions and their Attributes".
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from lxml.etree import XPath

from qbe.corpus.entry import Entry, converted
from qbe.corpus.fields import doi, month, present
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Reading
from qbe.corpus.xmlstream import Element, elements, root_tag, text_as_it_is, text_of
from qbe.errors import RecordError

Parts = dict[str, list[Element]]

_SET, _ARTICLE, _BOOK = "PubmedArticleSet", "PubmedArticle", "PubmedBookArticle"
_NAME = frozenset(("CollectiveName", "ForeName", "Initials", "LastName", "Suffix"))
_OWN_IDS = XPath("*/ArticleIdList/ArticleId")
_CITES = XPath(
    "*/ReferenceList//Reference/ArticleIdList/ArticleId[not(@IdType) or @IdType='pubmed']/text()",
    smart_strings=False,
)
"""The kind that the DTD assumes is "pubmed"."""

_PAGE = "https://pubmed.ncbi.nlm.nih.gov/"
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)", re.ASCII)
_KEPT_PERIOD = re.compile(r"(?:\.\.|\b(?:[^\W\d_]\.){2,})$")
"""The end of an ellipsis, or of an abbreviation such as U.S., whose last period belongs to the title."""

_TRUNCATION = "(ABSTRACT TRUNCATED"
_TRUNCATED = re.compile(rf"\s*{re.escape(_TRUNCATION)}[^()]*\)\s*$")
"""What NLM put at the end of the abstracts that it cut, until 2000."""


def recognizes(head: Head) -> bool:
    """Whether this is a set of PubMed's articles, or one."""
    return root_tag(head) in (_SET, _ARTICLE, _BOOK)


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The articles of a set, and the books and chapters that have a title; deletions are left out.

    >>> title = "<ArticleTitle>[On fish].</ArticleTitle>"
    >>> citation = f"<MedlineCitation><PMID>7</PMID><Article>{title}</Article></MedlineCitation>"
    >>> text = f"<PubmedArticleSet><PubmedArticle>{citation}</PubmedArticle></PubmedArticleSet>"
    >>> [entry] = read(io.BufferedReader(io.BytesIO(text.encode())), "pubmed.xml", Reading())
    >>> entry.record["paper_id"], entry.record["title"], entry.record["abstract"]
    ('7', 'On fish', None)
    """
    del reading
    return converted(elements(stream, name, frozenset((_ARTICLE, _BOOK))), _article_or_book)


def _article_or_book(source: Element, where: str) -> dict[str, Any]:
    return _article(source, where) if source.tag == _ARTICLE else _book(source, where)


def _article(source: Element, where: str) -> dict[str, Any]:
    """The record of a PubmedArticle; raises RecordError without PMID or title."""
    citation = _parts(_first(_parts(source), "MedlineCitation"))
    article = _parts(_first(citation, "Article"))
    title = _title(_first(article, "ArticleTitle")) or _title(_first(article, "VernacularTitle"))
    if not title:
        raise _without("title", where)
    journal = _parts(_first(article, "Journal"))
    issue = _first(_parts(_first(journal, "JournalIssue")), "PubDate")
    metadata = {
        "authors": _authors(article.get("AuthorList", ())),
        **_published(issue, article.get("ArticleDate", ())),
        "venue": plain(text_of(_first(journal, "Title")) or text_of(_first(journal, "ISOAbbreviation"))),
        **_ids(article, source),
    }
    return _record(citation, title, article, metadata, where)


def _book(source: Element, where: str) -> dict[str, Any]:
    """The record of a PubmedBookArticle: a chapter, else the book; raises RecordError as `_article`."""
    document = _parts(_first(_parts(source), "BookDocument"))
    book = _parts(_first(document, "Book"))
    chapter, whole = _title(_first(document, "ArticleTitle")), _title(_first(book, "BookTitle"))
    if not chapter and not whole:
        raise _without("title", where)
    metadata = {
        "authors": _authors(document.get("AuthorList", ())) or _authors(book.get("AuthorList", ())),
        **_published(_first(document, "ContributionDate"), book.get("PubDate", ())),
        "venue": whole if chapter else "",
        **_ids(document, source),
    }
    return _record(document, chapter or whole, document, metadata, where)


def _record(
    citation: Parts, title: str, article: Parts, metadata: dict[str, Any], where: str
) -> dict[str, Any]:
    paper_id = text_of(_first(citation, "PMID"))
    if not paper_id:
        raise _without("PMID", where)
    metadata |= {"tags": _tags(citation), "url": f"{_PAGE}{paper_id}/"}
    return {
        "paper_id": paper_id,
        "title": title,
        "abstract": _abstract(_first(article, "Abstract")) or None,
        "metadata": present(metadata),
    }


def _without(what: str, where: str) -> RecordError:
    return RecordError(
        f"{where}: expected a {what}, found none; add it or remove the record",
        "no title" if what == "title" else "no paper_id",
    )


# lxml takes longer to make a search for children of one tag than to go through all of them.


def _parts(parent: Element | None) -> Parts:
    """The children of an element, by their tags."""
    parts: Parts = {}
    for child in () if parent is None else parent:
        parts.setdefault(child.tag, []).append(child)
    return parts


def _first(parts: Parts, tag: str) -> Element | None:
    return parts[tag][0] if tag in parts else None


def _texts(parent: Element | None) -> dict[str, str]:
    """The texts of the children of an element, by their tags."""
    return {} if parent is None else {child.tag: (child.text or "").strip() for child in parent}


def _title(element: Element | None) -> str:
    """A title without the period that NLM adds, and without the brackets of one that was translated.

    '' for NLM's "[Not Available]".
    """
    if element is None:
        return ""
    title = _without_period(clean_title(text_as_it_is(element)))
    if _is_in_brackets(title):
        title = _without_period(title[1:-1].strip())
    return "" if title.lower() == "not available" else title


def _without_period(title: str) -> str:
    is_kept = title[-3:].count(".") > 1 and _KEPT_PERIOD.search(title[-20:])
    return title if is_kept else title.removesuffix(".").rstrip()


def _is_in_brackets(title: str) -> bool:
    """Whether the bracket that a title begins with is closed by its last character."""
    if not (title.startswith("[") and title.endswith("]")):
        return False
    depth = 0
    for place, character in enumerate(title):
        depth += (character == "[") - (character == "]")
        if depth == 0:
            return place == len(title) - 1
    return False


def _abstract(abstract: Element | None) -> str:
    """The sections of an abstract in their order, without the labels, which are attributes."""
    sections = () if abstract is None else abstract
    text = clean_abstract(" ".join(text_as_it_is(each) for each in sections if each.tag == "AbstractText"))
    return _TRUNCATED.sub("", text) if _TRUNCATION in text else text


def _tags(citation: Parts) -> list[str]:
    """The keywords of the authors, of NLM and others."""
    words = (plain(text_as_it_is(each)) for each in chain.from_iterable(citation.get("KeywordList", ())))
    return [word for word in dict.fromkeys(words) if word]


def _authors(lists: Iterable[Element]) -> list[str]:
    """Persons and groups in their order, without editors of books and names that NLM calls invalid."""
    names = (
        _name(author)
        for each in lists
        if each.get("Type") != "editors"
        for author in each
        if author.get("ValidYN") != "N"
    )
    return [name for name in names if name]


def _name(author: Element) -> str:
    parts = {part.tag: part.text or "" for part in author if part.tag in _NAME}
    given = parts.get("ForeName") or parts.get("Initials")
    name = " ".join(filter(None, (given, parts.get("LastName"), parts.get("Suffix"))))
    return plain(parts.get("CollectiveName") or name)


def _published(first: Element | None, others: Iterable[Element]) -> dict[str, Any]:
    """Year and date of the first element; where it has no month, the date of another of the same year.

    An article may be on the web in the year before its issue: year and date are to be of the same event.
    """
    year, date = _date(first)
    for other_year, other_date in () if date else map(_date, others):
        if not date and other_year and year in (None, other_year):
            year, date = other_year, other_date
    return {"year": year, "date": date}


def _date(element: Element | None) -> tuple[int | None, str]:
    """The year, None where there is none, and a date, '' where no more than the year is known."""
    parts = _texts(element)
    match = _YEAR.search(parts.get("Year") or parts.get("MedlineDate") or "")
    if not match:
        return None, ""
    year, named, day = match[0], parts.get("Month", ""), parts.get("Day", "")
    number = str(month(named) or named)
    if not _is_number(number, 12):
        return int(year), ""
    date = f"{year}-{int(number):02}"
    return int(year), f"{date}-{int(day):02}" if _is_number(day, 31) else date


def _is_number(text: str, largest: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= largest


def _ids(article: Parts, source: Element) -> dict[str, Any]:
    """The DOI, the id in PubMed Central, and the PMIDs of the references."""
    locations = (
        text_of(each)
        for each in article.get("ELocationID", ())
        if each.get("EIdType") == "doi" and each.get("ValidYN") != "N"
    )
    ids = [(each.get("IdType"), text_of(each)) for each in _OWN_IDS(source)]
    dois = chain(locations, (text for kind, text in ids if kind == "doi"))
    return {
        "doi": next(filter(None, map(doi, dois)), ""),
        "ids": present({"pmc": next((text for kind, text in ids if kind == "pmc"), "")}),
        "cites": list(dict.fromkeys(filter(None, map(str.strip, _CITES(source))))),
    }
