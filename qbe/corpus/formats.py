"""The formats that a corpus may come in, and how a file's is recognized."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import NamedTuple

from qbe.corpus import bibtex, json_formats, pdf, tables, tagged, xml_formats
from qbe.corpus.identity import ASSIGNED, CHOSEN, UNIQUE
from qbe.corpus.json_stream import list_path
from qbe.corpus.names import KINDS, PATTERNS, alternatives
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


_FIRST_ENTRY = re.compile(alternatives("first entry"), re.IGNORECASE | re.MULTILINE)


def _json_with(name: str) -> Callable[[Head], bool]:
    found = [re.compile(pattern) for of, pattern in PATTERNS if of == name]
    return lambda head: head.text[:1] in ("{", "[") and all(each.search(head.text) for each in found)


def _is_bibtex(head: Head) -> bool:
    is_named = head.suffix in (".bib", ".bibtex") or _FIRST_ENTRY.search(head.text) is not None
    return is_named and not head.text.startswith(("{", "[", "<"))


_OF_S2 = ("corpusid title externalids", "corpusid abstract", "paperId title")
_OF_S2ORC = (f"paper_id title abstract {each}" for each in ("s2_url", "outbound_citations", "has_pdf_parse"))
_OF_SEMANTIC_SCHOLAR = (*_OF_S2, *_OF_S2ORC)


def _is_semantic_scholar(head: Head) -> bool:
    is_list = head.text.startswith("[") or list_path(head) is not None
    is_named = is_list and all(f'"{name}"' in head.text for name in ("paperId", "title"))
    return is_named or any(map(head.has, _OF_SEMANTIC_SCHOLAR))


_BY_NAME: dict[str, tuple[Callable[[Head], bool], Reader]] = {
    "arxiv": (lambda it: it.has("id title abstract categories versions"), json_formats.read_arxiv),
    "semantic-scholar": (_is_semantic_scholar, json_formats.read_semantic_scholar),
    "openalex": (_json_with("openalex"), json_formats.read_openalex),
    "crossref": (_json_with("crossref"), json_formats.read_crossref),
    "pubmed": (lambda it: root_tag(it) in PUBMED_ROOTS, xml_formats.read_pubmed),
    "acl-anthology": (  # other formats have collections of other things
        lambda it: root_tag(it) == "collection" and "<volume" in it.text and "<collection id=" in it.text,
        xml_formats.read_anthology,
    ),
    "csl-json": (_json_with("csl-json"), json_formats.read_csl),
    "bibtex": (_is_bibtex, bibtex.read),
    **{name: (its.recognizes, its.read) for name, its in tagged.FORMATS.items()},
    # Before a PDF other bytes may stand.
    "pdf": (lambda it: b"%PDF-" in it.data[: 1024 if it.suffix == ".pdf" else len(b"%PDF-")], pdf.read),
    "parquet": (lambda it: it.data.startswith(b"PAR1"), tables.read_parquet),
    "jsonl": (_json_with("jsonl"), json_formats.read_entries),
    "table": (tables.is_table, tables.read_table),
}
_IDS = dict.fromkeys(("csl-json", "bibtex", "ris", "endnote", "refworks", "table"), CHOSEN)
_IDS |= dict.fromkeys(("parquet", "jsonl"), UNIQUE)
FORMATS = {name: Format(name, *each, _IDS.get(name, ASSIGNED)) for name, each in _BY_NAME.items()}
JSON_LINES = FORMATS["jsonl"]

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
    text = head.text[: 1 << 12]
    told = {"begins": head.data[: 1 << 12].decode("latin-1"), "suffix": head.suffix, "text": text}
    known = (kind for what, sign, kind in KINDS if what in told and re.match(f"(?s){sign}", told[what]))
    if kind := next(known, ""):
        return kind
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
