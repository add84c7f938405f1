"""The formats that a corpus may come in, and how a file's is recognized."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import NamedTuple

from qbe.corpus import bibtex, json_formats, pdf, tables, tagged, xml_formats
from qbe.corpus.identity import ASSIGNED, CHOSEN, UNIQUE
from qbe.corpus.json_stream import list_path
from qbe.corpus.records import FIELDS, Reader
from qbe.corpus.streams import Head, head_of, not_recognized
from qbe.corpus.xml_formats import PUBMED_ROOTS, root_tag
from qbe.errors import UsageError, did_you_mean


class Format(NamedTuple):
    """Describe a format: how it is recognized (in the order of FORMATS) and read, whose ids it has."""

    name: str
    recognizes: Callable[[Head], bool]
    read: Reader
    ids: str


_FIRST_ENTRY = re.compile(
    r"^[^\S\n]*@(?:string|comment|preamble|article|book|inproceedings|misc|[\w-]+\s*\{[^\s,={}()\"]*\s*[,=}])",
    re.IGNORECASE | re.MULTILINE,
)


def _json_with(*patterns: str, lacking: str = "(?!)") -> Callable[[Head], bool]:
    found, absent = list(map(re.compile, patterns)), re.compile(lacking)
    return lambda head: (
        head.text[:1] in ("{", "[")
        and all(each.search(head.text) for each in found)
        and not absent.search(head.text)
    )


def _is_semantic_scholar(head: Head) -> bool:
    is_list = head.text.startswith("[") or list_path(head) is not None
    return (
        head.has("corpusid", "title", "externalids")
        or head.has("corpusid", "abstract")
        or head.has("paperId", "title")
        or (
            head.has("paper_id", "title", "abstract")
            and any(map(head.has, ("s2_url", "outbound_citations", "has_pdf_parse")))
        )
        or (is_list and all(f'"{name}"' in head.text for name in ("paperId", "title")))
    )


_BY_NAME: dict[str, tuple[Callable[[Head], bool], Reader, str]] = {
    "arxiv": (
        lambda head: head.has("id", "title", "abstract", "categories", "versions"),
        json_formats.read_arxiv,
        ASSIGNED,
    ),
    "semantic-scholar": (_is_semantic_scholar, json_formats.read_semantic_scholar, ASSIGNED),
    "openalex": (
        _json_with(
            r'"id"\s*:\s*"https://openalex\.org/W\d+"',
            '"(?:authorships|abstract_inverted_index|publication_year|referenced_works|primary_location)"',
        ),
        json_formats.read_openalex,
        ASSIGNED,
    ),
    "crossref": (
        # The titles of CSL-JSON, which is similar, are strings.
        _json_with(r'"DOI"\s*:\s*"', r'"(?:container-)?title"\s*:\s*\[', lacking='"paper_id"'),
        json_formats.read_crossref,
        ASSIGNED,
    ),
    "pubmed": (lambda head: root_tag(head) in PUBMED_ROOTS, xml_formats.read_pubmed, ASSIGNED),
    "acl-anthology": (  # other formats have collections of other things
        lambda head: (
            root_tag(head) == "collection" and "<volume" in head.text and "<collection id=" in head.text
        ),
        xml_formats.read_anthology,
        ASSIGNED,
    ),
    "csl-json": (
        _json_with(  # what an item of CSL-JSON or Zotero has and other formats lack
            r'"itemType"\s*:|"type"\s*:\s*"(?:article-(?:journal|magazine|newspaper)|paper-conference|review-book)"'
            r'|"(?:date-parts|container-title|citation-key|issued)"\s*:|"author"\s*:\s*\[\s*\{\s*'
            r'"(?:family|given|literal|(?:non-)?dropping-particle)"',
            lacking=r'"(?:display_name|paper_id|paperId)"|"title"\s*:\s*\[',
        ),
        json_formats.read_csl,
        CHOSEN,
    ),
    "bibtex": (
        lambda head: (
            (head.suffix in (".bib", ".bibtex") or _FIRST_ENTRY.search(head.text) is not None)
            and not head.text.startswith(("{", "[", "<"))
        ),
        bibtex.read,
        CHOSEN,
    ),
    "ris": (tagged.RIS.recognizes, tagged.RIS.read, CHOSEN),
    "nbib": (tagged.NBIB.recognizes, tagged.NBIB.read, ASSIGNED),
    "wos": (tagged.WOS.recognizes, tagged.WOS.read, ASSIGNED),
    "endnote": (tagged.ENDNOTE.recognizes, tagged.ENDNOTE.read, CHOSEN),
    "refworks": (
        lambda head: tagged.REFWORKS.recognizes(head) and re.search(r"^[TA]1 ", head.text, re.M) is not None,
        tagged.REFWORKS.read,
        CHOSEN,
    ),
    "pdf": (  # other bytes may stand before its own
        lambda head: b"%PDF-" in head.data[: 1024 if head.suffix == ".pdf" else len(b"%PDF-")],
        pdf.read,
        ASSIGNED,
    ),
    "parquet": (lambda head: head.data.startswith(b"PAR1"), tables.read_parquet, UNIQUE),
    "jsonl": (_json_with(r'(?i)"[a-z_ ]*title(?:_?s)?"\s*:'), json_formats.read_entries, UNIQUE),
    "table": (tables.is_table, tables.read_table, CHOSEN),
}
FORMATS = {name: Format(name, *each) for name, each in _BY_NAME.items()}
JSON_LINES = FORMATS["jsonl"]

_BEGINNINGS = {
    b"{\\rtf": "an RTF document",
    b"\xd0\xcf\x11\xe0": "a document of Microsoft Office before 2007",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"SQLite format 3": "an SQLite database, as reference managers keep",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
}
_EXPORTS = {r"\{Reference T": "NoteExpress", r"<\d+\. ?>": "Ovid", r"#\*": "AMiner", "Record #": "Cochrane"}
_SUFFIXES = {".enl": "an EndNote library", ".enlx": "an EndNote library", ".numbers": "a spreadsheet"}
_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]*)")


def format_of(stream: io.BufferedReader, name: str, called: str | None = None) -> Format:
    """Return the format that is ``called`` so, or that of a source at its beginning.

    Raises UsageError where no format is called so, RecordError where the source has none of them.
    """
    if called in FORMATS:
        return FORMATS[called]
    if called:
        hint = did_you_mean(called, FORMATS, "check `format`")
        raise UsageError(f"expected `format` of {', '.join(FORMATS)}, found {called!r}; {hint}")
    head = head_of(stream, name)
    form = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    is_json = re.search(r"^[^\S\n]*(?:\[\s*)?\{", head.text, re.MULTILINE) is not None
    may_be_papers = not head.text or (is_json and any(f'"{each}"' in head.text for each in FIELDS))
    if form is None and not may_be_papers:
        raise not_recognized(name, kind_of(head))
    return form or JSON_LINES


def kind_of(head: Head) -> str:
    """Say what a file of another kind is, by its beginning and its name."""
    known = (kind for beginning, kind in _BEGINNINGS.items() if head.data.startswith(beginning))
    if kind := next(known, _SUFFIXES.get(head.suffix)):
        return kind
    if head.data[257:262] == b"ustar":
        return "a tar archive"
    text = head.text[: 1 << 12]
    if re.match(r"<!doctype html|<html", text, re.IGNORECASE):
        return "an HTML page"
    if begun := next((each for each in _EXPORTS if re.match(each, text)), None):
        return f"an export of {_EXPORTS[begun]}"
    if text.startswith("<"):
        element = _ELEMENT.search(head.text)
        of_element = f"XML of <{element[1]}>" if element else "XML"
        return "DBLP's XML, which has no abstracts" if of_element == "XML of <dblp>" else of_element
    if text[:1] in ("{", "["):
        fields = ", ".join(map(repr, list(head.record)[:8]))
        return f"JSON with {fields[:200]}" if fields else "JSON"
    if b"\0" in head.data or len(re.findall(r"[\x01-\x08\x0e-\x1f\ufffd]", text)) > len(text) / 10:
        return "binary data"
    is_latex = re.search(r"^\\(documentclass|begin\{|section\{)", text, re.MULTILINE)
    return "a LaTeX document" if is_latex else "plain text" if text else "an empty file"
