"""The formats that a corpus may come in, and how a file's is recognized."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from qbe.corpus import bibtex, json_formats, pdf, tables, tagged, xml_formats
from qbe.corpus.identity import ASSIGNED, CHOSEN, UNIQUE
from qbe.corpus.records import FIELDS, Entry, Reading
from qbe.corpus.streams import Head, head_of, not_recognized
from qbe.corpus.xml_formats import PUBMED_ROOTS, root_tag
from qbe.errors import UsageError, did_you_mean

# Reads the decompressed bytes of a source, whose name stands in messages, as entries. What is wrong with one
# record is a RecordError in its entry; CorpusError is raised where nothing more can be read.
Reader = Callable[[io.BufferedReader, str, Reading], Iterator[Entry]]


class Format(NamedTuple):
    """Describe a format: how it is recognized (in the order of FORMATS) and read, whose ids it has."""

    name: str
    recognizes: Callable[[Head], bool]
    read: Reader
    ids: str


FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        Format("arxiv", json_formats.is_arxiv, json_formats.read_arxiv, ASSIGNED),
        Format(
            "semantic-scholar", json_formats.is_semantic_scholar, json_formats.read_semantic_scholar, ASSIGNED
        ),
        Format("openalex", json_formats.is_openalex, json_formats.read_openalex, ASSIGNED),
        Format("crossref", json_formats.is_crossref, json_formats.read_crossref, ASSIGNED),
        Format("pubmed", lambda head: root_tag(head) in PUBMED_ROOTS, xml_formats.read_pubmed, ASSIGNED),
        Format("acl-anthology", xml_formats.is_anthology, xml_formats.read_anthology, ASSIGNED),
        Format("csl-json", json_formats.is_csl, json_formats.read_csl, CHOSEN),
        Format("bibtex", bibtex.recognizes, bibtex.read, CHOSEN),
        Format("ris", tagged.RIS.recognizes, tagged.RIS.read, CHOSEN),
        Format("nbib", tagged.NBIB.recognizes, tagged.NBIB.read, ASSIGNED),
        Format("wos", tagged.WOS.recognizes, tagged.WOS.read, ASSIGNED),
        Format("endnote", tagged.ENDNOTE.recognizes, tagged.ENDNOTE.read, CHOSEN),
        Format("pdf", pdf.recognizes, pdf.read, ASSIGNED),
        Format("parquet", lambda head: head.data.startswith(b"PAR1"), tables.read_parquet, UNIQUE),
        Format("jsonl", json_formats.is_jsonl, json_formats.read_entries, UNIQUE),
        Format("table", tables.is_table, tables.read_table, CHOSEN),
    )
}
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
_SUFFIXES = {".enl": "an EndNote library", ".enlx": "an EndNote library", ".numbers": "a spreadsheet"}
_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]*)")


def recognized(stream: io.BufferedReader, name: str) -> Format:
    """Return the format of a source at its beginning; raises RecordError where it is none of them."""
    head = head_of(stream, name)
    form = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    is_json = re.search(r"^\s*\[?\s*\{", head.text, re.MULTILINE) is not None
    may_be_papers = not head.text or (is_json and any(f'"{each}"' in head.text for each in FIELDS))
    if form is None and not may_be_papers:
        raise not_recognized(name, kind_of(head))
    return form or JSON_LINES


def format_of(stream: io.BufferedReader, name: str, called: str | None) -> Format:
    """Return the format that is ``called`` so, or is recognized; raises UsageError where there is none."""
    if called in FORMATS or not called:
        return FORMATS[called] if called else recognized(stream, name)
    hint = did_you_mean(called, FORMATS, "check `format`")
    raise UsageError(f"expected `format` of {', '.join(FORMATS)}, found {called!r}; {hint}")


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
    if text.startswith("<"):
        element = _ELEMENT.search(head.text)
        of_element = f"XML of <{element[1]}>" if element else "XML"
        return "DBLP's XML, which has no abstracts" if of_element == "XML of <dblp>" else of_element
    if text[:1] in ("{", "["):
        fields = ", ".join(map(ascii, list(head.record)[:8]))
        return f"JSON with {fields[:200]}" if fields else "JSON"
    if b"\0" in head.data or len(re.findall(r"[\x01-\x08\x0e-\x1f\ufffd]", text)) > len(text) / 10:
        return "binary data"
    is_latex = re.search(r"^\\(documentclass|begin\{|section\{)", text, re.MULTILINE)
    return "a LaTeX document" if is_latex else "plain text" if text else "an empty file"
