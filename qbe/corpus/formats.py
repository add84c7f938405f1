"""The formats that a corpus may come in, and how a file's is recognized."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from qbe.corpus import (
    acl_anthology,
    arxiv,
    bibtex,
    crossref,
    csl_json,
    jsonl,
    openalex,
    parquet,
    pubmed,
    semantic_scholar,
    table,
    tagged,
)
from qbe.corpus.dedupe import ASSIGNED, CHOSEN, UNIQUE
from qbe.corpus.head import Head, head_of, kind_of, not_recognized
from qbe.corpus.pdf import reader as pdf
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.record import FIELDS
from qbe.errors import UsageError, did_you_mean

Reader = Callable[[io.BufferedReader, str, Reading], Iterator[Entry]]
"""Reads the decompressed bytes of a source, whose name stands in messages, as a stream of entries.

What is wrong with one record is a `qbe.errors.RecordError` in its entry; CorpusError is raised where nothing
more can be read.
"""


class Format(NamedTuple):
    """A format: its name for ``--format``, how it is recognized and read, and whose ids its
    papers have (`qbe.corpus.dedupe`).

    ``recognizes`` is asked in the order of FORMATS.
    """

    name: str
    recognizes: Callable[[Head], bool]
    read: Reader
    ids: str


SEMANTIC_SCHOLAR = Format("semantic-scholar", semantic_scholar.recognizes, semantic_scholar.read, ASSIGNED)
PUBMED = Format("pubmed", pubmed.recognizes, pubmed.read, ASSIGNED)
JSON_LINES = Format("jsonl", jsonl.recognizes, jsonl.read_entries, UNIQUE)

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        Format("arxiv", arxiv.recognizes, arxiv.read, ASSIGNED),
        SEMANTIC_SCHOLAR,
        Format("openalex", openalex.recognizes, openalex.read, ASSIGNED),
        Format("crossref", crossref.recognizes, crossref.read, ASSIGNED),
        PUBMED,
        Format("acl-anthology", acl_anthology.recognizes, acl_anthology.read, ASSIGNED),
        Format("csl-json", csl_json.recognizes, csl_json.read, CHOSEN),
        Format("bibtex", bibtex.recognizes, bibtex.read, CHOSEN),
        Format("ris", tagged.RIS.recognizes, tagged.RIS.read, CHOSEN),
        Format("nbib", tagged.NBIB.recognizes, tagged.NBIB.read, ASSIGNED),
        Format("wos", tagged.WOS.recognizes, tagged.WOS.read, ASSIGNED),
        Format("endnote", tagged.ENDNOTE.recognizes, tagged.ENDNOTE.read, CHOSEN),
        Format("pdf", pdf.recognizes, pdf.read, ASSIGNED),
        Format("parquet", parquet.recognizes, parquet.read, UNIQUE),
        JSON_LINES,
        Format("table", table.recognizes, table.read, CHOSEN),
    )
}


def recognized(stream: io.BufferedReader, name: str) -> Format:
    """The format of a source that is still at its beginning; JSON lines for any JSON of papers.

    Raises RecordError where it is none of them.

    >>> recognized(io.BufferedReader(io.BytesIO(b'{"paper_id": "1", "title": "A"}')), "papers").name
    'jsonl'
    """
    head = head_of(stream, name)
    form = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    is_json = re.search(r"^\s*\[?\s*\{", head.text, re.MULTILINE) is not None
    may_be_papers = not head.text or (is_json and any(f'"{each}"' in head.text for each in FIELDS))
    if form is None and not may_be_papers:
        raise not_recognized(name, kind_of(head))
    return form or JSON_LINES


def format_of(name: str) -> Format:
    """The format of that name; raises UsageError where there is none.

    >>> format_of("arxv")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `format` of arxiv, ..., found 'arxv'; did you mean arxiv?
    """
    if name in FORMATS:
        return FORMATS[name]
    hint = did_you_mean(name, FORMATS, "check `format`")
    raise UsageError(f"expected `format` of {', '.join(FORMATS)}, found {name!r}; {hint}")
