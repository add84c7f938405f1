"""Papers in XML of many records (PubMed's DTD, the ACL Anthology's schema.rnc), read one at a time by lxml.

Entities that a document declares stay as they are written, because they can make gigabytes of a small file.
"""

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from lxml.etree import XMLSyntaxError, XPath, iterparse

from qbe.corpus.fields import NOT_THIS_FORMAT, date, dated, doi, noted, record, unfit
from qbe.corpus.markup import clean_title
from qbe.corpus.names import person_name
from qbe.corpus.records import Entry, Reading, converted
from qbe.corpus.streams import Bounded, Head, open_source
from qbe.errors import CorpusError

Element = Any  # of lxml, which states no types
# Children by tag: lxml takes longer to search for one tag than to go through all.
Parts = dict[str, list[Element]]

MAX_RECORD_BYTES = 8 << 20  # a paper of 15,000 authors has 5 MiB; libxml2 itself ends at twice that length

_PROLOG = re.compile(r"\s*(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)\s*", re.DOTALL)
_ENTITY_BYTES = 40
_BARE = re.compile(rb"&(?![\w#][\w:.-]{0,38};)")
_FORBIDDEN = re.compile(rb"&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|[xX]0*(?:[0-8bcefBCEF]|1[0-9a-fA-F]));")
_CONTROLS = bytes(32 if code < 32 and code not in (9, 10, 13) else code for code in range(256))
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
    return text if as_it_is else " ".join(text.split())


class _Repaired(Bounded):
    """Replaces what XML forbids, and libxml2 ends at: control characters, and ``&`` that begins nothing."""

    nests = False
    _rest = b""  # an entity that is cut

    def read(self, size: int = -1) -> bytes:
        data = self._rest + super().read(size)
        if b"\0" in data:  # UTF-16
            return data
        place = data.rfind(b"&", max(1, len(data) - _ENTITY_BYTES)) if len(data) > _ENTITY_BYTES else -1
        is_cut = place > 0 and b";" not in data[place:]
        data, self._rest = (data[:place], data[place:]) if is_cut else (data, b"")
        return _BARE.sub(b"&amp;", _FORBIDDEN.sub(b" ", data.translate(_CONTROLS)))


def elements(stream: io.BufferedReader, name: str, tags: Sequence[str]) -> Iterator[tuple[str, Element]]:
    """Yield the elements of these tags with their places, as they end; each may be changed freely.

    Everything else is forgotten, but for the elements around each. Raises CorpusError for malformed or
    truncated XML, records of more than MAX_RECORD_BYTES, and nesting deeper than libxml2 allows (256).
    """
    source = _Repaired(stream, name, MAX_RECORD_BYTES)
    options = {"resolve_entities": False, "no_network": True, "huge_tree": False, "remove_comments": True}
    events = iterparse(source, ("end",), tag=tags, remove_pis=True, **options)
    try:
        for number, (_, element) in enumerate(events, start=1):
            yield source.begin(f"{name}, record {number}"), element
            # Remove the elements that ended before this one, to which the parser may still add.
            while (parent := element.getparent()) is not None:
                while (before := element.getprevious()) is not None:
                    parent.remove(before)
                element = parent
    except XMLSyntaxError as error:
        problem = next(iter(events.error_log.filter_from_errors()), None)
        message, line = (problem.message, problem.line) if problem is not None else (str(error), 1)
        reason = ascii(" ".join(message.split())[:100].rstrip("."))[1:-1]
        found = f"an error ({reason}); mend it or fetch the file again"
        raise CorpusError(f"{name}, line {line}: expected whole and well-formed XML, found {found}") from None


DELETION = "a deletion in a stream"  # the reason of the error for deletions in PubMed's update files
_ARTICLE, _BOOK = "PubmedArticle", "PubmedBookArticle"
PUBMED_ROOTS = ("PubmedArticleSet", _ARTICLE, _BOOK)
_OWN_DOI = XPath("string(*/ArticleIdList/ArticleId[@IdType='doi'])")
_PMC = XPath("normalize-space(*/ArticleIdList/ArticleId[@IdType='pmc'])")
# The kind that the DTD assumes is "pubmed".
_IDS = "ArticleIdList/ArticleId[not(@IdType) or @IdType='pubmed']"
_CITES = XPath(f"*/ReferenceList//Reference/{_IDS}/text()", smart_strings=False)
_DELETION, _CITATIONS = "DeleteCitation", ("MedlineCitation", "BookDocument")
_BEGIN = re.compile(rb"<(?:MedlineCitation|BookDocument)[\s>]")
_PMID = re.compile(rb"<Pubmed\w*Article>\s*<\w+\b[^<>]*>\s*<PMID\b[^<>]*>(\d+)<")
_UNUSUAL = re.compile(rb"<!(?:--|\[CDATA|ENTITY)|<DeleteCitation")
# The last period of an ellipsis, or of an abbreviation such as U.S.
_KEPT_PERIOD = re.compile(r"(?:\.\.|\b(?:[^\W\d_]\.){2,})$")
_IN_BRACKETS = re.compile(r"\[[^\[\]]*+(?:\[[^\[\]]*+\][^\[\]]*+)*\]")


def read_pubmed(stream: io.BufferedReader, name: str, _: Reading) -> Iterator[Entry]:
    """Yield the articles, books and chapters of a set; a list of deleted ones is an error (DELETION)."""
    return converted(elements(stream, name, (_ARTICLE, _BOOK, _DELETION)), _from_pubmed)


def note_pubmed(file: str) -> Iterator[tuple[str, bool]]:
    """Yield the PMID of each article, book and deletion (True), as far as the XML can be read."""
    with open_source(file) as stream:
        if (plain := _plain_pmids(stream)) is not None:
            yield from ((pmid, False) for pmid in plain)
            return
    with open_source(file) as stream, contextlib.suppress(CorpusError):
        for _, element in elements(stream, "", (_ARTICLE, _BOOK, _DELETION)):
            is_deletion = element.tag == _DELETION
            pmids = element.findall("PMID" if is_deletion else "*/PMID")
            yield from ((text_of(pmid), is_deletion) for pmid in (pmids if is_deletion else pmids[:1]))


def _plain_pmids(stream: io.BufferedReader) -> list[str] | None:
    """Return the PMIDs of XML as NLM writes it, without parsing it; None where that could be wrong."""
    pmids, rest = list[str](), b""
    while data := stream.read(1 << 20):
        data = rest + data
        end = data.rfind(b"</PMID>") + 1
        data, rest = data[:end], data[end:]
        found = _PMID.findall(data)
        pmids += map(bytes.decode, found)
        if len(rest) > MAX_RECORD_BYTES or _UNUSUAL.search(data) or len(_BEGIN.findall(data)) != len(found):
            return None
    is_whole = b"</Pubmed" in rest and not _BEGIN.search(rest)
    return pmids if is_whole and 0 < len(pmids) == len(set(pmids)) else None


def _from_pubmed(source: Element) -> dict[str, Any] | None:
    if source.tag == _DELETION:
        if not len(source):
            return None
        found = "some in a stream, which cannot be read twice"
        raise unfit("deletions in a file", found, "save it and give the file", DELETION)
    is_article = source.tag == _ARTICLE
    whole = _parts([source])
    citation = _parts(whole.get(_CITATIONS[not is_article]))
    if not (paper_id := text_of(*citation.get("PMID", [None])[:1])):
        raise unfit("a PMID", "none", "add it or remove the record", "no paper_id")
    if is_article:
        article = _parts(citation.get("Article"))
        title = _title(article.get("ArticleTitle")) or _title(article.get("VernacularTitle"))
        journal = _parts(article.get("Journal"))
        issue = _parts(journal.get("JournalIssue")).get("PubDate", [None])[0]
        dates = _published(issue, article.get("ArticleDate", []))
        names = (text_of(*journal.get(name, [None])[:1]) for name in ("Title", "ISOAbbreviation"))
        authors, venue = article.get("AuthorList", []), next(filter(None, names), "")
    else:
        article, book = citation, _parts(citation.get("Book"))
        chapter, venue = _title(citation.get("ArticleTitle")), _title(book.get("BookTitle"))
        title, venue = (chapter, venue) if chapter else (venue, "")
        authors = citation.get("AuthorList") or book.get("AuthorList", [])
        dates = _published(citation.get("ContributionDate", [None])[0], book.get("PubDate", []))
    places = (each for each in article.get("ELocationID", ()) if each.get("EIdType") == "doi")
    locations = (text_of(each) for each in places if each.get("ValidYN") != "N")
    # Without editors of books and names that NLM calls invalid.
    people = chain.from_iterable(each for each in authors if each.get("Type") != "editors")
    words = chain.from_iterable(citation.get("KeywordList", ()))
    headings = chain.from_iterable(citation.get("MeshHeadingList", ()))
    metadata = {
        "authors": [_name(author) for author in people if author.get("ValidYN") != "N"],
        **dates,
        "venue": venue,
        "doi": next(filter(None, map(doi, locations)), "") or doi(_OWN_DOI(source)),
        "ids": {"pmc": _PMC(source)},
        "cites": list(filter(None, dict.fromkeys(map(str.strip, _CITES(source))))),
        "tags": [*map(text_of, words), *("/".join(map(text_of, heading)) for heading in headings)],
        "url": f"https://pubmed.ncbi.nlm.nih.gov/{paper_id}/",
    }
    abstracts = article.get("Abstract", ()) or citation.get("OtherAbstract", ())  # in another language
    parts = (part for each in abstracts[:1] for part in each if part.tag == "AbstractText")
    abstract = " ".join(text_of(part, as_it_is=True).strip() for part in parts)
    twice = _repeated(whole, *_CITATIONS) + _repeated(citation, "Article")
    twice += _repeated(article, "ArticleTitle", "Abstract")
    return noted(record(paper_id, title, abstract, metadata, is_fault=False), twice)


def _parts(parents: Iterable[Element] | None) -> Parts:
    """Return the children of the first of some elements, by tag."""
    parts: Parts = {}
    for child in next(iter(parents or ()), ()):
        parts.setdefault(child.tag, []).append(child)
    return parts


def _repeated(parts: Parts, *names: str) -> list[str]:
    several = [name for name in names if len(parts.get(name, ())) > 1]
    return [name for name in several if len(set(map(text_of, parts[name]))) > 1]


def _title(elements: Sequence[Element] | None) -> str:
    """Return a title without NLM's period, brackets of a translated one, and "[Not Available]"."""
    title = clean_title(text_of(elements[0], as_it_is=True)) if elements else ""
    for _ in range(2):
        is_kept = title[-3:].count(".") > 1 and _KEPT_PERIOD.search(title[-20:])
        title = title if is_kept else title.removesuffix(".").rstrip()
        if _IN_BRACKETS.fullmatch(title):
            title = title[1:-1].strip()
    return "" if title.lower() == "not available" else title


def _name(author: Element) -> str:
    parts = {part.tag: part.text or "" for part in author}
    if "CollectiveName" in parts:
        return text_of(author.find("CollectiveName"))
    family, given = parts.get("LastName", ""), parts.get("ForeName") or parts.get("Initials", "")
    if family.isalnum() and given.istitle() and "Suffix" not in parts:  # nearly all, in a tenth of the time
        return f"{given} {family}"
    return person_name(family, given, parts.get("Suffix", ""))


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


_ABOUT = ("year", "month", "booktitle")  # what a volume tells of its papers
_OF_PAPERS = ("title", "abstract", "doi")


def read_anthology(stream: io.BufferedReader, name: str, _: Reading) -> Iterator[Entry]:
    """Yield the papers of a collection's volumes, without their front matter."""
    about: dict[Element, dict[str, Any]] = {}

    def to_record(paper: Element) -> dict[str, Any]:
        volume = paper.getparent()
        if volume not in about:  # its meta stands before its first paper, and is forgotten then
            is_volume = volume is not None and volume.tag == "volume"
            texts = {tag: text_of(volume.find(f"meta/{tag}") if is_volume else None) for tag in _ABOUT}
            published = date(f"{texts['year']} {texts['month']}")[: len("YYYY-MM")]
            about.clear()
            about[volume] = {**dated(published), "venue": texts["booktitle"]}
        around = [each.get("id", "") for each in paper.iterancestors()] or [""]
        paper_id = anthology_id(around[-1], around[0], paper.get("id", ""))
        for formula in paper.iter("tex-math"):
            formula.text, formula.tail = f"${formula.text or ''}", f"${formula.tail or ''}"
        for end in paper.iter("par"):
            end.tail = f" {end.tail or ''}"
        parts = _parts([paper])
        title, abstract, own_doi = (text_of(*parts.get(tag, [None])[:1]) for tag in _OF_PAPERS)
        names = ([text_of(each.find(part)) for part in ("first", "last")] for each in parts.get("author", ()))
        metadata = {
            "authors": list(map(" ".join, names)),
            **about[volume],
            "doi": own_doi,
            "url": f"https://aclanthology.org/{paper_id}/",
        }
        return noted(record(paper_id, title, abstract, metadata), _repeated(parts, *_OF_PAPERS))

    return converted(elements(stream, name, ("paper",)), to_record)


def anthology_id(*ids: str) -> str:
    """Return the id of a paper from those of its collection, volume and its own; raises RecordError."""
    collection, volume, paper = (each.strip() for each in ids)
    if collection[:1].isdigit() and volume and paper:  # from 2020 on
        return f"{collection}-{volume}.{paper}"
    numbers = all(each.isascii() and each.isdigit() and len(each) <= 4 for each in (volume, paper))
    if not collection or not numbers:
        expected = "ids of collection, volume and paper such as P18, 1 and 1"
        found = ", ".join(ascii(each.strip()[:40]) for each in ids)
        raise unfit(expected, found, "mend or remove the record", NOT_THIS_FORMAT)
    of_workshop = collection[0] == "W" or collection == "C69" or (collection == "D19" and int(volume) >= 5)
    digits = (2, 2) if of_workshop else (1, 3)
    return f"{collection}-{int(volume):0{digits[0]}}{int(paper):0{digits[1]}}"
