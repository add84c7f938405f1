"""XML documents of many records, read one record at a time.

Nothing that a document declares itself is obeyed: one whose DOCTYPE holds declarations is refused, because
entities and attributes' default values can make gigabytes of a small file. A DOCTYPE that merely names a DTD
is let pass, and the DTD is not read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers import expat

from qbe.corpus.head import Head
from qbe.errors import CorpusError

MAX_RECORD_BYTES = 16 << 20
"""A longer record ends in an error instead of filling the memory; a paper of 15,000 authors has 5 MiB."""

MAX_DEPTH = 256
"""How deep elements may be nested outside of records."""

_CHUNK_BYTES = 1 << 18
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

    >>> from xml.etree.ElementTree import fromstring
    >>> text_of(fromstring("<title>CO<sub>2</sub> in\n <i>Salmo</i> rivers</title>")), text_of(None)
    ('CO2 in Salmo rivers', '')
    """
    return "" if element is None else " ".join("".join(element.itertext()).split())


def elements(stream: io.BufferedReader, name: str, tags: frozenset[str]) -> Iterator[tuple[str, Element]]:
    """The outermost elements of these tags, with their places; each may be changed freely.

    What else the document holds is forgotten. Raises CorpusError for XML that is malformed or truncated,
    declarations within the document, records of more than MAX_RECORD_BYTES, and a nesting of others deeper
    than MAX_DEPTH.

    >>> stream = io.BufferedReader(io.BytesIO(b"<set><a><b>1</b></a><c/><a/></set>"))
    >>> [(where, element.findtext("b")) for where, element in elements(stream, "set.xml", frozenset("a"))]
    [('set.xml, record 1', '1'), ('set.xml, record 2', None)]
    """
    for number, (element, _) in enumerate(elements_within(stream, name, tags), start=1):
        yield f"{name}, record {number}", element


def elements_within(
    stream: io.BufferedReader, name: str, tags: frozenset[str]
) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """As `elements`, with the elements around each, the outermost first; of these only attributes are kept.

    >>> stream = io.BufferedReader(io.BytesIO(b"<set><part id='7'><a/></part></set>"))
    >>> [around[-1].get("id") for _, around in elements_within(stream, "set.xml", frozenset("a"))]
    ['7']
    """
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    prolog = _Prolog(name)
    around: list[Element] = []
    record: Element | None = None
    line = 1  # the last that was read
    size = 0  # bytes since an element ended that is not within a record
    ended = False
    while not ended:
        data = stream.read(_CHUNK_BYTES)
        ended = not data
        size += len(data)
        line += data.count(b"\n")
        prolog.check(data)
        try:
            _feed(parser, data, name)
            for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                if event == "start":
                    if record is not None:
                        continue
                    if element.tag in tags:
                        record = element
                    else:
                        around.append(element)
                        if len(around) > MAX_DEPTH:
                            raise CorpusError(
                                f"{name}, line {line}: expected elements nested at most {MAX_DEPTH} deep, "
                                "found more; mend or remove them"
                            )
                elif record is None:
                    around.pop()
                    size = 0
                elif element is record:
                    yield record, tuple(around)
                    record = None
                    size = 0
        except ParseError as error:
            raise _malformed(name, error.code, *error.position, str(error)) from None
        _forget_children(around, record)
        if size > MAX_RECORD_BYTES:
            raise CorpusError(
                f"{name}, line {line}: expected at most {MAX_RECORD_BYTES >> 20} MiB a record, found more; "
                "mend or remove it"
            )


def _forget_children(around: list[Element], record: Element | None) -> None:
    """Remove from open elements the children that have ended: all but the next of these, or the record."""
    for parent in around[:-1]:
        del parent[:-1]
    if around:
        del around[-1][: None if record is None else -1]


class _Prolog:
    """What stands before the outermost element, checked for declarations before anything else reads it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._passed = False
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._pass

    def check(self, data: bytes) -> None:
        """Read on to the outermost element, to the end where there are no bytes.

        Raises CorpusError for declarations and malformed XML.
        """
        if self._passed:
            return
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as error:
            if not self._passed:  # else the document's parser says it, after the records before that place
                raise _malformed(self._name, error.code, error.lineno, error.offset, str(error)) from None
        except (ValueError, LookupError) as error:
            raise _unreadable(self._name, error) from None

    def _doctype(self, _name: str, _system: str | None, _public: str | None, has_declarations: bool) -> None:
        if has_declarations:
            raise CorpusError(
                f"{self._name}, line {self._parser.CurrentLineNumber}: expected a DOCTYPE without "
                "declarations, found some in brackets; remove them with the brackets"
            )

    def _pass(self, _name: str, _attributes: Any) -> None:
        self._passed = True
        self._parser.StartElementHandler = None


def _feed(parser: XMLPullParser[Any], data: bytes, name: str) -> None:
    """Parse bytes; the end where there are none."""
    try:
        if data:
            parser.feed(data)
        else:
            parser.close()
    except (ValueError, LookupError) as error:
        raise _unreadable(name, error) from None


def _malformed(name: str, code: int, line: int, column: int, message: str) -> CorpusError:
    """The error for a document from which the parser reads no further."""
    where = f"{name}, line {line}"
    problem = message.rpartition(": line")[0].removeprefix("not well-formed ").strip("()")[:100]
    match expat.errors.messages.get(code):
        case (
            expat.errors.XML_ERROR_NO_ELEMENTS
            | expat.errors.XML_ERROR_UNCLOSED_TOKEN
            | expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION
            | expat.errors.XML_ERROR_PARTIAL_CHAR
        ):
            return CorpusError(f"{where}: expected the rest of the XML, found its end; fetch the file again")
        case expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT:
            return CorpusError(
                f"{where}: expected one XML document, found more behind its end; give each a file of its own"
            )
    return CorpusError(
        f"{where}: expected well-formed XML, found {problem} at column {column + 1}; "
        "mend it or fetch the file again"
    )


def _unreadable(name: str, error: Exception) -> CorpusError:
    """The error for an encoding that is declared and cannot be read."""
    problem = " ".join(str(error).split())[:100]
    return CorpusError(
        f"{name}: expected XML in UTF-8, found an encoding that cannot be read ({problem}); "
        "convert it to UTF-8"
    )
