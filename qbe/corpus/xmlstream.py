"""XML documents of many records, read one record at a time by libxml2 (the package lxml).

Nothing that a document declares itself is obeyed: one whose DOCTYPE declares entities or elements is
refused, because entities can make gigabytes of a small file. A DOCTYPE that merely names a DTD is let pass,
and the DTD is not read; entities that it may define stay in the text as they are.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any

from lxml.etree import LxmlError, XMLPullParser

from qbe.corpus.head import Head
from qbe.corpus.markup import single_spaced
from qbe.errors import CorpusError

Element = Any
"""An element of lxml, which states no types."""

MAX_RECORD_BYTES = 8 << 20
"""A longer record ends in an error instead of filling the memory; a paper of 15,000 authors has 5 MiB. (At
twice that length libxml2 ends the reading by itself, and where elements are nested more than MAX_DEPTH deep.)
"""
MAX_DEPTH = 256

_TOO_LARGE = f"at most {MAX_RECORD_BYTES >> 20} MiB a record", "more", "mend or remove it"
_CHUNK_BYTES, _PROLOG_BYTES = 1 << 16, 1 << 10
_PROLOG = re.compile(r"\s*(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)\s*", re.DOTALL)
_START = re.compile(r"<([^\s/>!?]+)")


def root_tag(head: Head) -> str:
    """The name of a document's outermost element; '' for what is no XML, and where it is not within reach.

    >>> root_tag(Head("a.xml", b'<?xml version="1.0"?><!DOCTYPE dblp SYSTEM "dblp.dtd"><dblp>'))
    'dblp'
    """
    place = 0
    while match := _PROLOG.match(head.text, place):
        place = match.end()
    start = _START.match(head.text, place)
    return start[1] if start else ""


def text_of(element: Element | None) -> str:
    r"""The text of an element with that of its inline markup, in single spaces; '' where there is no element.

    >>> from lxml.etree import fromstring
    >>> text_of(fromstring("<title>CO<sub>2</sub> in\n <i>Salmo</i> rivers</title>")), text_of(None)
    ('CO2 in Salmo rivers', '')
    """
    return single_spaced(text_as_it_is(element))


def text_as_it_is(element: Element | None) -> str:
    """As `text_of`, with the white space between words that the document has."""
    if element is None:
        return ""
    return "".join(element.itertext()) if len(element) else element.text or ""


def elements(stream: io.BufferedReader, name: str, tags: frozenset[str]) -> Iterator[tuple[str, Element]]:
    """The elements of these tags, with their places, as they end; each may be changed freely.

    One within another, as where an end is lost, comes before that, which then lacks what stood before it.
    What else the document holds is forgotten, but for the elements around each and their attributes. Raises
    CorpusError for XML that is malformed or truncated, declarations within the document, records (or what
    stands between two) of more than MAX_RECORD_BYTES, and a nesting deeper than MAX_DEPTH.

    >>> stream = io.BufferedReader(io.BytesIO(b"<set><part id='7'><a/></part></set>"))
    >>> [(where, each.getparent().get("id")) for where, each in elements(stream, "set.xml", frozenset("a"))]
    [('set.xml, record 1', '7')]
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
            _forget_before(element)
        if errors := parser.feed_error_log.filter_from_errors():
            raise _malformed(errors[0], name, line, is_end=not data)
        if not data:
            if prolog is not None:
                raise _error(f"{name}, line {line}", "the rest of the XML", "its end", "fetch the file again")
            return
        if size > MAX_RECORD_BYTES:
            raise _error(f"{name}, line {line}", *_TOO_LARGE)


def _forget_before(element: Element) -> None:
    """Remove the elements that ended before this one; what ended last stays, as the parser may add to it."""
    while (parent := element.getparent()) is not None:
        while (before := element.getprevious()) is not None:
            parent.remove(before)
        element = parent


def _passed_prolog(parser: XMLPullParser, data: bytes, name: str) -> bool:
    """Whether the outermost element begins in some bytes; so little is parsed after its beginning that
    nothing large can come of it. Raises CorpusError where declarations stand before it.
    """
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
    """The error for a document of which no more can be read; for a size or an end ``line`` is known."""
    where = f"{name}, line {problem.line}"
    if problem.type_name == "ERR_DOCUMENT_END":
        return _error(where, "one XML document", "more after its end", "give each a file of its own")
    if problem.type_name == "ERR_RESOURCE_LIMIT":
        nested = f"elements nested at most {MAX_DEPTH} deep", "more", "mend or remove them"
        return _error(f"{name}, line {line}", *(nested if "depth" in problem.message else _TOO_LARGE))
    if is_end:
        return _error(f"{name}, line {line}", "the rest of the XML", "its end", "fetch the file again")
    message = ascii(" ".join(problem.message.split())[:100].rstrip("."))[1:-1]
    return _error(where, "well-formed XML", f"an error ({message})", "mend it or fetch the file again")


def _error(where: str, expected: str, found: str, advice: str) -> CorpusError:
    return CorpusError(f"{where}: expected {expected}, found {found}; {advice}")
