"""Papers in XML of many records (PubMed's DTD, the ACL Anthology's schema.rnc), read one at a time by lxml.

A DOCTYPE that declares entities or elements is refused, because entities can make gigabytes of a small file;
one that merely names a DTD passes, unread.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lxml.etree import LxmlError, XMLPullParser, XPath

from qbe.corpus.fields import NOT_THIS_FORMAT, date, dated, doi, no_title, once, present, record, unfit
from qbe.corpus.markup import clean_abstract, clean_title, plain, single_spaced
from qbe.corpus.names import person_name
from qbe.corpus.records import Entry, Reading, converted
from qbe.corpus.streams import Head
from qbe.errors import CorpusError

Element = Any  # of lxml, which states no types
Parts = dict[
    str, list[Element]
]  # children by tag: lxml takes longer to search for one tag than to go through all

MAX_RECORD_BYTES = 8 << 20  # a paper of 15,000 authors has 5 MiB; libxml2 itself ends at twice that length
MAX_DEPTH = 256  # where libxml2 ends

_TOO_LARGE = f"at most {MAX_RECORD_BYTES >> 20} MiB a record", "more", "mend or remove it"
_CUT = "the rest of the XML", "its end", "fetch the file again"
_CHUNK_BYTES, _PROLOG_BYTES = 1 << 16, 1 << 10
_PROLOG = re.compile(r"\s*(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)\s*", re.DOTALL)
_START = re.compile(r"<([^\s/>!?]+)")


def root_tag(head: Head) -> str:
    """Return the name of a document's root element; '' for what is no XML, or where it is out of reach."""
    place = 0
    while match := _PROLOG.match(head.text, place):
        place = match.end()
    start = _START.match(head.text, place)
    return start[1] if start else ""


def text_of(element: Element | None, *, as_it_is: bool = False) -> str:
    """Return the text of an element with that of its inline markup, in single spaces or as it is."""
    if element is None:
        return ""
    text = "".join(element.itertext()) if len(element) else element.text or ""
    return text if as_it_is else single_spaced(text)


def elements(stream: io.BufferedReader, name: str, tags: frozenset[str]) -> Iterator[tuple[str, Element]]:
    """Yield the elements of these tags with their places, as they end; each may be changed freely.

    Everything else is forgotten, but for the elements around each. Raises CorpusError for malformed or
    truncated XML, declarations, records of more than MAX_RECORD_BYTES, and nesting deeper than MAX_DEPTH.
    """
    options = {"resolve_entities": False, "no_network": True, "huge_tree": False}
    parser = XMLPullParser(("end",), tag=tuple(tags), remove_comments=True, remove_pis=True, **options)
    prolog: XMLPullParser | None = XMLPullParser(("start",), **options)
    number = size = 0  # of records; of bytes since one ended
    line = 1  # the last that was read
    while True:
        data = stream.read(_CHUNK_BYTES)
        size += len(data)
        line += data.count(b"\n")
        if prolog is not None and _passed_prolog(prolog, data, name):
            prolog = None
        with contextlib.suppress(LxmlError):  # its log has all errors, also those that it does not raise
            parser.feed(data) if data else parser.close()
        for _, element in parser.read_events():
            number, size = number + 1, 0
            yield f"{name}, record {number}", element
            # Remove the elements that ended before this one, to which the parser may still add.
            while (parent := element.getparent()) is not None:
                while (before := element.getprevious()) is not None:
                    parent.remove(before)
                element = parent
        if errors := parser.feed_error_log.filter_from_errors():
            raise _malformed(errors[0], name, line, is_end=not data)
        if not data:
            if prolog is not None:
                raise _error(f"{name}, line {line}", *_CUT)
            return
        if size > MAX_RECORD_BYTES:
            raise _error(f"{name}, line {line}", *_TOO_LARGE)


def _passed_prolog(parser: XMLPullParser, data: bytes, name: str) -> bool:
    """Return True if the root begins; feeds so little that no declaration can make anything large."""
    for place in range(0, len(data), _PROLOG_BYTES):
        with contextlib.suppress(LxmlError):  # the document's parser says it
            parser.feed(data[place : place + _PROLOG_BYTES])
        for _, root in parser.read_events():
            declared = root.getroottree().docinfo.internalDTD
            if declared is not None and (any(declared.iterentities()) or any(declared.iterelements())):
                expected, found = "a DOCTYPE without declarations", "some in brackets"
                raise _error(name, expected, found, "remove them with the brackets")
            return True
    return False


def _malformed(problem: Any, name: str, line: int, *, is_end: bool) -> CorpusError:
    here, where = f"{name}, line {line}", f"{name}, line {problem.line}"
    if problem.type_name == "ERR_DOCUMENT_END":
        return _error(where, "one XML document", "more after its end", "give each a file of its own")
    if problem.type_name == "ERR_RESOURCE_LIMIT":
        nested = f"elements nested at most {MAX_DEPTH} deep", "more", "mend or remove them"
        return _error(here, *(nested if "depth" in problem.message else _TOO_LARGE))
    if is_end:
        return _error(here, *_CUT)
    message = ascii(" ".join(problem.message.split())[:100].rstrip("."))[1:-1]
    return _error(where, "well-formed XML", f"an error ({message})", "mend it or fetch the file again")


def _error(where: str, expected: str, found: str, advice: str) -> CorpusError:
    return CorpusError(f"{where}: expected {expected}, found {found}; {advice}")


# --- PubMed ---

DELETION = "a deletion in a stream"  # the reason of the error for deletions in PubMed's update files
_ARTICLE, _BOOK = "PubmedArticle", "PubmedBookArticle"
PUBMED_ROOTS = ("PubmedArticleSet", _ARTICLE, _BOOK)
_NAME = frozenset(("CollectiveName", "ForeName", "Initials", "LastName", "Suffix"))
_OWN_DOI = XPath("string(*/ArticleIdList/ArticleId[@IdType='doi'])")
_PMC = XPath("normalize-space(*/ArticleIdList/ArticleId[@IdType='pmc'])")
# The kind that the DTD assumes is "pubmed".
_CITES = XPath(
    "*/ReferenceList//Reference/ArticleIdList/ArticleId[not(@IdType) or @IdType='pubmed']/text()",
    smart_strings=False,
)
_DELETION = "DeleteCitation"
# The last period of an ellipsis, or of an abbreviation such as U.S.
_KEPT_PERIOD = re.compile(r"(?:\.\.|\b(?:[^\W\d_]\.){2,})$")
_IN_BRACKETS = re.compile(r"\[[^\[\]]*+(?:\[[^\[\]]*+\][^\[\]]*+)*+\]")
_TRUNCATION = "(ABSTRACT TRUNCATED"  # of abstracts that NLM cut, until 2000
_TRUNCATED = re.compile(rf"\s*{re.escape(_TRUNCATION)}[^()]*\)\s*$")
_CITATION = re.compile(
    rb"<(?:MedlineCitation|BookDocument)\b[^>]*>\s*<PMID[^>]*>\s*(\d+)\s*<|<DeleteCitation>(.*?)</DeleteCitation>",
    re.DOTALL,
)
_PMID = re.compile(rb"<PMID\b[^>]*>\s*(\d+)\s*<")
_READ_BYTES = 1 << 20
_LONGEST_START, _LONGEST_DELETION = 1 << 12, 8 << 20  # how far a citation may reach over the end of a chunk


def read_pubmed(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the articles, books and chapters of a set; a list of deleted ones is an error (DELETION)."""
    del reading
    return converted(elements(stream, name, frozenset((_ARTICLE, _BOOK, _DELETION))), _from_pubmed)


def note_pubmed(stream: io.BufferedReader) -> Iterator[tuple[str, bool]]:
    """Yield the PMID of each article, book and deletion (True), without parsing the XML."""
    text = b""
    while data := stream.read(_READ_BYTES):
        text, end = text + data, 0
        for match in _CITATION.finditer(text):
            end = match.end()
            pmids = [match[1]] if match[1] else _PMID.findall(match[2])
            yield from ((pmid.decode(), not match[1]) for pmid in pmids)
        begun = text.rfind(b"<DeleteCitation>", end)
        rest = len(text) - (_LONGEST_START if begun < 0 else min(len(text) - begun, _LONGEST_DELETION))
        text = text[max(end, rest) :]


def _from_pubmed(source: Element, where: str) -> dict[str, Any] | None:
    if source.tag == _DELETION:
        if not len(source):
            return None
        found = "some in a stream, which cannot be read twice"
        raise unfit(where, "deletions in a file", found, "save it and give the file", DELETION)
    is_article = source.tag == _ARTICLE
    citation = _parts(_parts([source]).get("MedlineCitation" if is_article else "BookDocument"))
    paper_id = text_of(*citation.get("PMID", [None])[:1])
    if not paper_id:
        raise unfit(where, "a PMID", "none", "add it or remove the record", "no paper_id")
    authors = _pubmed_authors(citation.get("AuthorList", ()))
    if is_article:
        article = _parts(citation.get("Article"))
        title = _title(article.get("ArticleTitle")) or _title(article.get("VernacularTitle"))
        journal = _parts(article.get("Journal"))
        issue = _parts(journal.get("JournalIssue")).get("PubDate", [None])[0]
        dates = _published(issue, article.get("ArticleDate", ()))
        names = (text_of(*journal.get(name, [None])[:1]) for name in ("Title", "ISOAbbreviation"))
        authors, venue = _pubmed_authors(article.get("AuthorList", ())), plain(next(filter(None, names), ""))
    else:
        article, book = citation, _parts(citation.get("Book"))
        chapter, venue = _title(citation.get("ArticleTitle")), _title(book.get("BookTitle"))
        title, venue = (chapter, venue) if chapter else (venue, "")
        authors = authors or _pubmed_authors(book.get("AuthorList", ()))
        dates = _published(citation.get("ContributionDate", [None])[0], book.get("PubDate", ()))
    if not title:
        raise no_title(where, paper_id)
    locations = (
        text_of(each)
        for each in article.get("ELocationID", ())
        if each.get("EIdType") == "doi" and each.get("ValidYN") != "N"
    )
    words = (plain(text_of(word, as_it_is=True)) for each in citation.get("KeywordList", ()) for word in each)
    metadata = {
        "authors": authors,
        **dates,
        "venue": venue,
        "doi": next(filter(None, map(doi, locations)), "") or doi(_OWN_DOI(source)),
        "ids": present({"pmc": _PMC(source)}),
        "cites": once(map(str.strip, _CITES(source))),
        "tags": once(words),
        "url": f"https://pubmed.ncbi.nlm.nih.gov/{paper_id}/",
    }
    parts = (part for each in article.get("Abstract", ())[:1] for part in each if part.tag == "AbstractText")
    abstract = clean_abstract(" ".join(text_of(part, as_it_is=True).strip() for part in parts))
    abstract = _TRUNCATED.sub("", abstract) if _TRUNCATION in abstract else abstract
    return record(paper_id, title, abstract, metadata)


def _parts(parents: Iterable[Element] | None) -> Parts:
    """Return the children of the first of some elements, by tag."""
    parts: Parts = {}
    for child in next(iter(parents or ()), ()):
        parts.setdefault(child.tag, []).append(child)
    return parts


def _title(elements: Sequence[Element] | None) -> str:
    """Return a title without NLM's period, brackets of a translated one, and "[Not Available]"."""
    title = _without_period(clean_title(text_of(elements[0], as_it_is=True))) if elements else ""
    if _IN_BRACKETS.fullmatch(title):
        title = _without_period(title[1:-1].strip())
    return "" if title.lower() == "not available" else title


def _without_period(title: str) -> str:
    is_kept = title[-3:].count(".") > 1 and _KEPT_PERIOD.search(title[-20:])
    return title if is_kept else title.removesuffix(".").rstrip()


def _pubmed_authors(lists: Iterable[Element]) -> list[str]:
    """Return persons and groups, without editors of books and names that NLM calls invalid."""
    authors = (author for each in lists if each.get("Type") != "editors" for author in each)
    return [name for author in authors if author.get("ValidYN") != "N" and (name := _name(author))]


def _name(author: Element) -> str:
    parts = {part.tag: part.text or "" for part in author if part.tag in _NAME}
    if "CollectiveName" in parts:
        return plain(text_of(author.find("CollectiveName")))
    family, given = parts.get("LastName", ""), parts.get("ForeName") or parts.get("Initials", "")
    if family.isalnum() and given.istitle() and "Suffix" not in parts:  # nearly all, in a tenth of the time
        return plain(f"{given} {family}")
    return plain(person_name(family, given, parts.get("Suffix", "")))


def _published(first: Element | None, others: Iterable[Element]) -> dict[str, Any]:
    """Return year and date of the same event: an article may be on the web in the year before its issue."""
    published = _date(first)
    for other in () if len(published) > len("YYYY") else map(_date, others):
        if len(published) <= len("YYYY") and other.startswith(published):
            published = other
    return dated(published)


def _date(element: Element | None) -> str:
    parts = {} if element is None else {child.tag: child.text or "" for child in element}
    if "Year" in parts:
        return date("-".join(parts[name].strip() for name in ("Year", "Month", "Day") if name in parts))
    return date(parts.get("MedlineDate", ""))[: len("YYYY")]


# --- ACL Anthology ---


def is_anthology(head: Head) -> bool:
    """Return True for a collection of volumes (other formats have collections of other things)."""
    return root_tag(head) == "collection" and "<volume" in head.text and "<collection id=" in head.text


def read_anthology(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the papers of a collection's volumes, without their front matter."""
    del reading
    volume: Element = None
    about: dict[str, Any] = {}

    def to_record(paper: Element, where: str) -> dict[str, Any]:
        nonlocal volume, about
        parent = paper.getparent()
        if parent is not volume:  # a volume's meta stands before its first paper, and is forgotten then
            volume = parent
            meta = volume.find("meta") if volume is not None and volume.tag == "volume" else None
            of_meta = (
                {tag: text_of(meta.find(tag)) for tag in ("year", "month", "booktitle")}
                if meta is not None
                else {}
            )
            published = date(f"{of_meta.get('year', '')} {of_meta.get('month', '')}")[: len("YYYY-MM")]
            about = {**dated(published), "venue": clean_title(of_meta.get("booktitle", ""))}
        around = [each.get("id", "") for each in paper.iterancestors()] or [""]
        paper_id = anthology_id(around[-1], around[0], paper.get("id", ""), where)
        for formula in paper.iter("tex-math"):
            formula.text, formula.tail = f"${formula.text or ''}", f"${formula.tail or ''}"
        for end in paper.iter("par"):
            end.tail = f" {end.tail or ''}"
        texts = {tag: text_of(paper.find(tag)) for tag in ("title", "abstract", "doi")}
        title = clean_title(texts["title"])
        if not title:
            raise no_title(where, is_fault=True)
        names = (
            (text_of(each.find("first")), text_of(each.find("last"))) for each in paper.findall("author")
        )
        url = f"https://aclanthology.org/{paper_id}/"
        metadata = {
            "authors": list(filter(None, (" ".join(each).strip() for each in names))),
            **about,
            "doi": doi(texts["doi"]),
        }
        return record(paper_id, title, clean_abstract(texts["abstract"]), {**metadata, "url": url})

    return converted(elements(stream, name, frozenset(("paper",))), to_record)


def anthology_id(collection: str, volume: str, paper: str, where: str) -> str:
    """Return the id of a paper, from those of its collection, its volume and its own within this.

    Raises RecordError for ids that are missing, or are no numbers where numbers are due.
    """
    ids = collection.strip(), volume.strip(), paper.strip()
    collection, volume, paper = ids
    if all(ids) and collection[0].isdigit():  # from 2020 on
        return f"{collection}-{volume}.{paper}"
    if not all(ids) or not all(each.isascii() and each.isdigit() and len(each) <= 4 for each in ids[1:]):
        expected = "ids of collection, volume and paper such as P18, 1 and 1"
        found = ", ".join(ascii(each[:40]) for each in ids)
        raise unfit(where, expected, found, "mend or remove the record", NOT_THIS_FORMAT)
    of_workshop = collection[0] == "W" or collection == "C69" or (collection == "D19" and int(volume) >= 5)
    digits = (2, 2) if of_workshop else (1, 3)
    return f"{collection}-{int(volume):0{digits[0]}}{int(paper):0{digits[1]}}"
