"""PubMed's XML: ``PubmedArticleSet``, of the yearly baseline, the update files, and the answers of efetch.

The schema is NLM's PubMed DTD (``pubmed_250101.dtd``), described in NLM's "MEDLINE PubMed XML Element
Descriptions and their Attributes".
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from lxml.etree import XPath

from qbe.corpus.authors import person_name
from qbe.corpus.fields import date, dated, doi, no_title, present, record
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Entry, Reading, Revisions, converted
from qbe.corpus.xmlstream import Element, elements, root_tag, text_as_it_is, text_of
from qbe.errors import RecordError

Parts = dict[str, list[Element]]

_SET, _ARTICLE, _BOOK = "PubmedArticleSet", "PubmedArticle", "PubmedBookArticle"
_NAME = frozenset(("CollectiveName", "ForeName", "Initials", "LastName", "Suffix"))
_OWN_DOI = XPath("string(*/ArticleIdList/ArticleId[@IdType='doi'])")
_PMC = XPath("normalize-space(*/ArticleIdList/ArticleId[@IdType='pmc'])")
_CITES = XPath(
    "*/ReferenceList//Reference/ArticleIdList/ArticleId[not(@IdType) or @IdType='pubmed']/text()",
    smart_strings=False,
)
"""The kind that the DTD assumes is "pubmed"."""

_DELETION = "DeleteCitation"
_PAGE = "https://pubmed.ncbi.nlm.nih.gov/"
_KEPT_PERIOD = re.compile(r"(?:\.\.|\b(?:[^\W\d_]\.){2,})$")
"""The end of an ellipsis, or of an abbreviation such as U.S., whose last period belongs to the title."""

_IN_BRACKETS = re.compile(r"\[[^\[\]]*+(?:\[[^\[\]]*+\][^\[\]]*+)*+\]")
_TRUNCATION = "(ABSTRACT TRUNCATED"
_TRUNCATED = re.compile(rf"\s*{re.escape(_TRUNCATION)}[^()]*\)\s*$")
"""What NLM put at the end of the abstracts that it cut, until 2000."""

_CITATION = re.compile(
    rb"<(?:MedlineCitation|BookDocument)\b[^>]*>\s*<PMID([^>]*)>\s*(\d+)\s*<|<DeleteCitation>(.*?)</DeleteCitation>",
    re.DOTALL,
)
_PMID = re.compile(rb"<PMID\b[^>]*>\s*(\d+)\s*<")
_VERSION = re.compile(rb"\bVersion\s*=\s*[\"'](\d{1,9})[\"']")
_CHUNK_BYTES = 1 << 20
_LONGEST_START, _LONGEST_DELETION = 1 << 12, 8 << 20
"""How far what is looked for may reach over the end of a chunk, in bytes."""


def recognizes(head: Head) -> bool:
    """Whether this is a set of PubMed's articles, or one."""
    return root_tag(head) in (_SET, _ARTICLE, _BOOK)


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The articles, books and chapters of a set; of ``reading.revisions`` those that count.

    Without these, as for a stream that can be read only once, a deletion is an error in its entry.

    >>> title = "<ArticleTitle>[On fish].</ArticleTitle>"
    >>> citation = f"<MedlineCitation><PMID>7</PMID><Article>{title}</Article></MedlineCitation>"
    >>> text = f"<PubmedArticleSet><PubmedArticle>{citation}</PubmedArticle></PubmedArticleSet>"
    >>> [entry] = read(io.BufferedReader(io.BytesIO(text.encode())), "pubmed.xml", Reading())
    >>> entry.record["paper_id"], entry.record["title"], entry.record["abstract"]
    ('7', 'On fish', None)
    """
    revisions = reading.revisions

    def article(source: Element, where: str) -> dict[str, Any] | None:
        if source.tag != _DELETION:
            return _record(source, where, revisions)
        if revisions is None and len(source):
            raise RecordError(
                f"{where}: expected deletions in a file, found some in a stream, which cannot be read twice; "
                "save it and give the file",
                "a deletion in a stream",
            )
        return None

    return converted(elements(stream, name, frozenset((_ARTICLE, _BOOK, _DELETION))), article)


def _record(source: Element, where: str, revisions: Revisions | None) -> dict[str, Any]:
    """The record of an article or book, if no newer one of ``revisions`` counts."""
    is_article = source.tag == _ARTICLE
    citation = _parts(_first(_parts(source), "MedlineCitation" if is_article else "BookDocument"))
    paper_id = text_of(_first(citation, "PMID"))
    if not paper_id:
        raise RecordError(f"{where}: expected a PMID, found none; add it or remove the record", "no paper_id")
    if revisions is not None and not revisions.counts(paper_id):
        raise RecordError(
            f"{where}: PMID {paper_id} has a newer version, or is deleted", "an older version", is_fault=False
        )
    title, article, metadata = _article(citation) if is_article else _book(citation)
    if not title:
        raise no_title(where)
    metadata |= {**_ids(article, source), "tags": _tags(citation), "url": f"{_PAGE}{paper_id}/"}
    return record(paper_id, title, _abstract(_first(article, "Abstract")), metadata)


def _article(citation: Parts) -> tuple[str, Parts, dict[str, Any]]:
    """The title of an article, its parts, and what is known of where and when it was published."""
    article = _parts(_first(citation, "Article"))
    title = _title(_first(article, "ArticleTitle")) or _title(_first(article, "VernacularTitle"))
    journal = _parts(_first(article, "Journal"))
    issue = _first(_parts(_first(journal, "JournalIssue")), "PubDate")
    metadata = {
        "authors": _authors(article.get("AuthorList", ())),
        **_published(issue, article.get("ArticleDate", ())),
        "venue": plain(text_of(_first(journal, "Title")) or text_of(_first(journal, "ISOAbbreviation"))),
    }
    return title, article, metadata


def _book(document: Parts) -> tuple[str, Parts, dict[str, Any]]:
    """The same of a chapter, else of the book."""
    book = _parts(_first(document, "Book"))
    chapter, whole = _title(_first(document, "ArticleTitle")), _title(_first(book, "BookTitle"))
    metadata = {
        "authors": _authors(document.get("AuthorList", ())) or _authors(book.get("AuthorList", ())),
        **_published(_first(document, "ContributionDate"), book.get("PubDate", ())),
        "venue": whole if chapter else "",
    }
    return chapter or whole, document, metadata


# lxml takes longer to make a search for children of one tag than to go through all of them.


def _parts(parent: Element | None) -> Parts:
    """The children of an element, by their tags."""
    parts: Parts = {}
    for child in () if parent is None else parent:
        parts.setdefault(child.tag, []).append(child)
    return parts


def _first(parts: Parts, tag: str) -> Element | None:
    return parts[tag][0] if tag in parts else None


def _title(element: Element | None) -> str:
    """A title without the period that NLM adds, and without the brackets of one that was translated.

    '' for NLM's "[Not Available]".
    """
    if element is None:
        return ""
    title = _without_period(clean_title(text_as_it_is(element)))
    if _IN_BRACKETS.fullmatch(title):
        title = _without_period(title[1:-1].strip())
    return "" if title.lower() == "not available" else title


def _without_period(title: str) -> str:
    is_kept = title[-3:].count(".") > 1 and _KEPT_PERIOD.search(title[-20:])
    return title if is_kept else title.removesuffix(".").rstrip()


def _abstract(abstract: Element | None) -> str:
    """The sections of an abstract in their order, without the labels, which are attributes."""
    sections = () if abstract is None else abstract
    text = clean_abstract(
        " ".join(text_as_it_is(each).strip() for each in sections if each.tag == "AbstractText")
    )
    return _TRUNCATED.sub("", text) if _TRUNCATION in text else text


def _tags(citation: Parts) -> list[str]:
    """The keywords of the authors, of NLM and others."""
    words = (plain(text_as_it_is(word)) for each in citation.get("KeywordList", ()) for word in each)
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
    if "CollectiveName" in parts:
        return plain(text_of(author.find("CollectiveName")))
    family, given = parts.get("LastName", ""), parts.get("ForeName") or parts.get("Initials", "")
    if family.isalnum() and given.istitle() and "Suffix" not in parts:  # nearly all, in a tenth of the time
        return plain(f"{given} {family}")
    return plain(person_name(family, given, parts.get("Suffix", "")))


def _published(first: Element | None, others: Iterable[Element]) -> dict[str, Any]:
    """Year and date of the first element; where it has no month, the date of another of the same year.

    An article may be on the web in the year before its issue: year and date are to be of the same event.
    """
    published = _date(first)
    for other in () if len(published) > len("YYYY") else map(_date, others):
        if len(published) <= len("YYYY") and other.startswith(published):
            published = other
    return dated(published)


def _date(element: Element | None) -> str:
    """A date, as much of it as is known; of a span of time (MedlineDate) the first year."""
    parts = {} if element is None else {child.tag: child.text or "" for child in element}
    if "Year" in parts:
        return date("-".join(parts[name].strip() for name in ("Year", "Month", "Day") if name in parts))
    return date(parts.get("MedlineDate", ""))[: len("YYYY")]


def _ids(article: Parts, source: Element) -> dict[str, Any]:
    """The DOI, the id in PubMed Central, and the PMIDs of the references."""
    locations = (
        text_of(each)
        for each in article.get("ELocationID", ())
        if each.get("EIdType") == "doi" and each.get("ValidYN") != "N"
    )
    return {
        "doi": next(filter(None, map(doi, locations)), "") or doi(_OWN_DOI(source)),
        "ids": present({"pmc": _PMC(source)}),
        "cites": list(dict.fromkeys(filter(None, map(str.strip, _CITES(source))))),
    }


def note_pubmed(stream: io.BufferedReader, revisions: Revisions) -> None:
    """Note the versions of articles and books, and the deletions, of PubMed's XML in UTF-8.

    >>> cited = "<MedlineCitation><PMID Version='2'>7</PMID></MedlineCitation>"
    >>> text = f"{cited}<DeleteCitation><PMID>8</PMID></DeleteCitation>"
    >>> noted = Revisions()
    >>> note_pubmed(io.BufferedReader(io.BytesIO(text.encode())), noted)
    >>> noted.deleted
    {'8'}
    """
    text = b""
    while data := stream.read(_CHUNK_BYTES):
        text += data
        end = 0
        for match in _CITATION.finditer(text):
            end = match.end()
            if match[2]:
                version = _VERSION.search(match[1])
                revisions.note(match[2].decode(), int(version[1]) if version else 1)
            else:
                for pmid in _PMID.findall(match[3]):
                    revisions.delete(pmid.decode())
        begun = text.rfind(b"<DeleteCitation>", end)
        rest = len(text) - (_LONGEST_START if begun < 0 else min(len(text) - begun, _LONGEST_DELETION))
        text = text[max(end, rest) :]
