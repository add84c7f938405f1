"""PubMed's XML: ``PubmedArticleSet``, of the yearly baseline, the update files, and the answers of efetch.

The schema is NLM's PubMed DTD (``pubmed_250101.dtd``), described in NLM's "MEDLINE PubMed XML Element
Descriptions and their Attributes".
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import Element

from qbe.corpus.entry import Entry, converted
from qbe.corpus.fields import doi, month, present
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Reading
from qbe.corpus.xmlstream import elements, root_tag, text_of
from qbe.errors import RecordError

_SET, _ARTICLE, _BOOK = "PubmedArticleSet", "PubmedArticle", "PubmedBookArticle"
_PAGE = "https://pubmed.ncbi.nlm.nih.gov/"
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)", re.ASCII)
_KEPT_PERIOD = re.compile(r"(?:\.\.|\b(?:[^\W\d_]\.){2,})$")
"""The end of an ellipsis, or of an abbreviation such as U.S., whose last period belongs to the title."""

_TRUNCATED = re.compile(r"\s*\(ABSTRACT TRUNCATED[^()]*\)\s*$")
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


def _article_or_book(source: Element, where: str) -> dict[str, Any] | None:
    return _article(source, where) if source.tag == _ARTICLE else _book(source, where)


def _article(source: Element, where: str) -> dict[str, Any]:
    """The record of a PubmedArticle; raises RecordError without PMID or title."""
    article = _child(source, "MedlineCitation/Article")
    title = _title(article, "ArticleTitle") or _title(article, "VernacularTitle")
    if not title:
        raise RecordError(f"{where}: expected a title, found none; add it or remove the record", "no title")
    journal = _child(article, "Journal")
    metadata = {
        "authors": _authors(article.findall("AuthorList")),
        **_published(_child(journal, "JournalIssue/PubDate"), article.findall("ArticleDate")),
        "venue": plain(text_of(journal.find("Title")) or text_of(journal.find("ISOAbbreviation"))),
        **_ids(article, _child(source, "PubmedData")),
    }
    return _record(source.find("MedlineCitation/PMID"), title, article, metadata, where)


def _book(source: Element, where: str) -> dict[str, Any] | None:
    """The record of a PubmedBookArticle: a chapter, else the book; None where it has no title.

    Raises RecordError without PMID.
    """
    document = _child(source, "BookDocument")
    book = _child(document, "Book")
    chapter, whole = _title(document, "ArticleTitle"), _title(book, "BookTitle")
    if not chapter and not whole:
        return None
    metadata = {
        "authors": _authors(document.findall("AuthorList")) or _authors(book.findall("AuthorList")),
        **_published(_child(document, "ContributionDate"), book.findall("PubDate")),
        "venue": whole if chapter else "",
        **_ids(document, _child(source, "PubmedBookData")),
    }
    return _record(document.find("PMID"), chapter or whole, document, metadata, where)


def _record(
    pmid: Element | None, title: str, parent: Element, metadata: dict[str, Any], where: str
) -> dict[str, Any]:
    paper_id = text_of(pmid)
    if not paper_id:
        raise RecordError(f"{where}: expected a PMID, found none; add it or remove the record", "no paper_id")
    return {
        "paper_id": paper_id,
        "title": title,
        "abstract": _abstract(parent) or None,
        "metadata": present(metadata | {"url": f"{_PAGE}{paper_id}/"}),
    }


def _child(parent: Element, path: str) -> Element:
    """The first element of that path, an empty one where there is none."""
    child = parent.find(path)
    return Element("absent") if child is None else child


def _title(parent: Element, tag: str) -> str:
    """A title without the period that NLM adds, and without the brackets of one that was translated.

    '' for NLM's "[Not Available]".
    """
    title = _without_period(clean_title(text_of(parent.find(tag))))
    if _is_in_brackets(title):
        title = _without_period(title[1:-1].strip())
    return "" if title.lower() == "not available" else title


def _without_period(title: str) -> str:
    return title if _KEPT_PERIOD.search(title[-20:]) else title.removesuffix(".").rstrip()


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


def _abstract(parent: Element) -> str:
    """The sections of an abstract in their order, without the labels, which are attributes."""
    sections = (text_of(section) for section in parent.findall("Abstract/AbstractText"))
    return _TRUNCATED.sub("", clean_abstract(" ".join(filter(None, sections))))


def _authors(lists: Iterable[Element]) -> list[str]:
    """Persons and groups in their order, without editors of books and names that NLM calls invalid."""
    names = (
        _name(author)
        for each in lists
        if each.get("Type") != "editors"
        for author in each.findall("Author")
        if author.get("ValidYN") != "N"
    )
    return [name for name in names if name]


def _name(author: Element) -> str:
    given = text_of(author.find("ForeName")) or text_of(author.find("Initials"))
    parts = given, text_of(author.find("LastName")), text_of(author.find("Suffix"))
    return plain(text_of(author.find("CollectiveName")) or " ".join(filter(None, parts)))


def _published(first: Element, others: Iterable[Element]) -> dict[str, Any]:
    """Year and date of the first element; where it has no month, the date of another of the same year.

    An article may be on the web in the year before its issue: year and date are to be of the same event.
    """
    year, date = _date(first)
    for other_year, other_date in map(_date, others):
        if not date and other_year and year in (None, other_year):
            year, date = other_year, other_date
    return {"year": year, "date": date}


def _date(element: Element) -> tuple[int | None, str]:
    """The year, None where there is none, and a date, '' where no more than the year is known."""
    match = _YEAR.search(text_of(element.find("Year")) or text_of(element.find("MedlineDate")))
    if not match:
        return None, ""
    year, named, day = match[0], text_of(element.find("Month")), text_of(element.find("Day"))
    number = str(month(named) or named)
    if not _is_number(number, 12):
        return int(year), ""
    date = f"{year}-{int(number):02}"
    return int(year), f"{date}-{int(day):02}" if _is_number(day, 31) else date


def _is_number(text: str, largest: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= largest


def _ids(parent: Element, data: Element) -> dict[str, Any]:
    """The DOI, the id in PubMed Central, and the PMIDs of the references."""
    locations = (
        text_of(each)
        for each in parent.findall("ELocationID")
        if each.get("EIdType") == "doi" and each.get("ValidYN") != "N"
    )
    article_dois = [*_ids_of(parent, "doi"), *_ids_of(data, "doi")]
    cites = (pmid for reference in data.iter("Reference") for pmid in _ids_of(reference, "pubmed"))
    return {
        "doi": next(filter(None, map(doi, (*locations, *article_dois))), ""),
        "ids": present({"pmc": next(_ids_of(data, "pmc"), "")}),
        "cites": list(dict.fromkeys(cites)),
    }


def _ids_of(parent: Element, kind: str) -> Iterator[str]:
    """The ids of a kind in an element's own ArticleIdList; "pubmed" is the kind that the DTD assumes."""
    for each in parent.findall("ArticleIdList/ArticleId"):
        if each.get("IdType", "pubmed") == kind and (text := text_of(each)):
            yield text
