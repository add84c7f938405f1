"""The beginning of a source, by which its format is recognized."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

from qbe.corpus.names import FORMATS
from qbe.errors import RecordError

NOT_RECOGNIZED = "format not recognized"
"""The reason of the error for a file of another kind."""

_BEGINNINGS = {
    b"{\\rtf": "an RTF document",
    b"\xd0\xcf\x11\xe0": "a document of Microsoft Office before 2007",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"SQLite format 3": "an SQLite database, as reference managers keep",
    b"BZh": "data compressed by bzip2",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
}
_SUFFIXES = {".enl": "an EndNote library", ".enlx": "an EndNote library", ".numbers": "a spreadsheet"}
_MEMBERS = {
    "word/": "a Word document",
    "xl/": "an Excel workbook",
    "ppt/": "a PowerPoint document",
    "content.xml": "an OpenDocument file",
    "sdb/": "an EndNote library",
}
_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]*)")
HEAD_BYTES = 1 << 16


def not_recognized(name: str, kind: str) -> RecordError:
    """The error for a file of another kind.

    >>> print(not_recognized("draft.rtf", "an RTF document"))
    draft.rtf: format not recognized: expected arxiv, ... or table, found an RTF document; export ...
    """
    return RecordError(
        f"{name}: {NOT_RECOGNIZED}: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, "
        f"found {kind}; "
        "export the papers in one of these formats (reference managers have BibTeX and RIS)",
        NOT_RECOGNIZED,
    )


def kind_of(head: Head) -> str:
    r"""What a file is, by its beginning and its name.

    >>> kind_of(Head("a", b"{\\rtf1")), kind_of(Head("draft.txt", b"Fish swim.\nWe count."))
    ('an RTF document', 'plain text')
    """
    for beginning, kind in _BEGINNINGS.items():
        if head.data.startswith(beginning):
            return kind
    if head.suffix in _SUFFIXES:
        return _SUFFIXES[head.suffix]
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


def kind_of_archive(members: Iterable[str]) -> str:
    """What document a zip archive of such members is; '' for an archive of files.

    >>> kind_of_archive(["[Content_Types].xml", "word/document.xml"]), kind_of_archive(["papers.bib"])
    ('a Word document', '')
    """
    members = list(members)
    return next((_MEMBERS[begin] for begin in _MEMBERS if any(m.startswith(begin) for m in members)), "")


@dataclass(frozen=True)
class Head:
    """A source's name and its first decompressed bytes (HEAD_BYTES at most, of a pipe perhaps fewer).

    >>> head = Head("papers.jsonl.gz", b'{"id": "a"}')
    >>> head.suffix, head.text, head.record
    ('.jsonl', '{"id": "a"}', {'id': 'a'})
    """

    name: str
    data: bytes

    @property
    def suffix(self) -> str:
        """The suffix of the name in lower case, that of a compression left out."""
        path = PurePath(self.name)
        if path.suffix.lower() in (".gz", ".xz", ".zst", ".zip", ".bz2"):
            path = path.with_suffix("")
        return path.suffix.lower()

    @cached_property
    def text(self) -> str:
        """The bytes as text, without white space at its beginning; what is not UTF-8 is replaced."""
        return self.data.decode(errors="replace").lstrip()

    @cached_property
    def record(self) -> dict[str, Any]:
        """The first JSON object of the text, also the first of an array; empty where there is none, or where
        it is cut.
        """
        try:
            value, _ = json.JSONDecoder().raw_decode(self.text.removeprefix("[").lstrip())
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def has(self, *names: str) -> bool:
        """Whether the first record has all these fields; of one that is cut, whether its text names them.

        >>> Head("-", b'{"id": 1, "title": "On').has("id", "title")
        True
        """
        if self.record:
            return all(name in self.record for name in names)
        is_json = self.text[:1] in ("{", "[") and "\n" not in self.text.rstrip()
        return is_json and all(f'"{name}":' in self.text.replace('" :', '":') for name in names)


def head_of(stream: io.BufferedReader, name: str) -> Head:
    """The beginning of a stream that is still at its start, and stays there.

    >>> head_of(io.BufferedReader(io.BytesIO(b'{"id": 1}')), "works.json").record
    {'id': 1}
    """
    return Head(name, stream.peek(HEAD_BYTES)[:HEAD_BYTES])
