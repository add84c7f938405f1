"""Papers of a repository by OAI-PMH 2.0 (Lagoze et al., 2002), one page at a time, no faster than it allows.

Records are read in arXiv's formats (info.arxiv.org/help/oa): ``arXiv`` has authors by parts, but only the
date of the newest version; ``arXivRaw`` the dates of all versions, of which the first counts.
"""

import contextlib
import html
import http.client
import io
import logging
import re
import socket
import time
import urllib.error
import urllib.parse
import zlib
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from qbe.corpus.json_formats import from_arxiv as to_record
from qbe.corpus.records import parse_paper
from qbe.corpus.sentences import unsplit
from qbe.corpus.xml_formats import Element, elements, text_of
from qbe.errors import CorpusError, RecordError, UsageError
from qbe.util import web

log = logging.getLogger("qbe.feeds")

RETRIES = web.Retries(attempts=8, pause=5.0, longest_pause=300.0, longest_wait=6 * 3600.0)
TIMEOUT_S = 120.0
PAGE_SECONDS = 600.0  # within which a page must have come
MAX_PAGE_BYTES = 256 << 20
KEPT = "what was harvested is kept: run the same command later to go on"
_OAI = "{http://www.openarchives.org/OAI/2.0/}"
_TAGS = [f"{_OAI}{name}" for name in ("record", "resumptionToken", "error", "responseDate", "ListRecords")]
_DECLARED = re.compile(rb"<\?xml[^>]{0,100}encoding=[\"']([\w.-]{1,40})[\"'][^>]{0,100}\?>")
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z]\w{0,30};")
_RECORD = re.compile(r"(?=<(?:\w{1,20}:)?record[\s>])")
_END = re.compile(r"</(?:\w{1,20}:)?record\s?>")
_AFTER = re.compile(r"<(?:\w{1,20}:)?resumptionToken|</(?:\w{1,20}:)?ListRecords")
_CLOSE = re.compile(rb"</(?:\w{1,20}:)?OAI-PMH\s?>")
_ROOT = re.compile(r"<((?:\w{1,20}:)?OAI-PMH)[^<>]*>")


class Page(NamedTuple):
    """A page of a list of records."""

    records: list[tuple[str, Mapping[str, Any] | RecordError | None]]  # by id; None for a deleted paper
    token: str  # of the next page, '' at the end
    date: str  # of the answer
    size: int = 0  # of the list, where the server says so


class TokenError(Exception):
    """The server does not know a resumption token, or no longer."""


class Repository:
    """A repository, asked at most once in ``interval`` seconds, again after temporary failures (see RETRIES).

    Until it has answered once, an unknown host or an answer that is not OAI-PMH means that the URL is wrong.
    """

    def __init__(self, address: str, interval: float, *, pause: float = RETRIES.pause) -> None:
        if not address.lower().startswith(("https://", "http://")):
            raise UsageError(f"expected an `address` with https:// or http://, found {address}; check it")
        if not 0 <= interval <= 86_400:
            raise UsageError(f"expected an `interval` of 0 seconds to a day (86400), found {interval:g}")
        self.address = address
        self._interval, self._retries = interval, RETRIES._replace(pause=pause)
        self._next, self._has_answered = 0.0, False
        self._mends = False  # whether a page that is no XML is parsed apart: it came so twice

    def records(self, arguments: Mapping[str, str]) -> Page:
        """Ask for a page of ``ListRecords``; raise TokenError, or CorpusError where there is none."""
        told, self._mends = partial(log.warning, "%s: %s; asking again in %.0f s", self.address), False
        try:
            return self._retries.run(lambda: self._page(self._answer(arguments)), told)
        except web.TemporaryError as error:
            found = f"{error} ({error.attempts} attempts)"
            raise CorpusError(f"{self.address}: expected an answer, found {found}; {KEPT}") from None

    def _answer(self, arguments: Mapping[str, str]) -> bytes:
        """The body of an answer, also with an error status where it may hold the protocol's own error."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        url = f"{self.address}?{urllib.parse.urlencode({'verb': 'ListRecords', **arguments})}"
        body, end = bytearray(), time.monotonic() + PAGE_SECONDS
        try:
            try:
                response = web.open_url(url, {"Accept": "text/xml"}, TIMEOUT_S)
            except urllib.error.HTTPError as error:
                response = error
            with response:
                while block := web.read_block(response, 1 << 18, at_once=True):
                    body += block
                    if time.monotonic() > end:
                        raise web.TemporaryError(f"no whole answer within {PAGE_SECONDS:g} s")
                    if len(body) > MAX_PAGE_BYTES:
                        raise self._bad(f"a page of at most {MAX_PAGE_BYTES >> 20} MiB, found more")
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, (socket.gaierror, *web.LASTING)) and not self._has_answered:
                raise self._bad(f"an answer, found none ({cause})") from None
            raise web.TemporaryError(f"no whole answer ({web.reason_of(error)})") from None
        finally:
            self._next = time.monotonic() + self._interval
        if web.is_temporary_status(response.status):
            raise web.TemporaryError(f"HTTP status {response.status}", web.retry_after(response.headers))
        if response.status >= 300 and b"<error" not in body:
            found = f"HTTP status {response.status} {response.reason}"
            raise self._bad(f"the records of a repository, found {found}")
        return bytes(body)

    def _bad(self, expected: str, culprit: str = "`address`") -> CorpusError:
        return CorpusError(f"{self.address}: expected {expected}; check {culprit}")

    def _page(self, data: bytes) -> Page:
        if data.startswith(b"\x1f\x8b"):  # compressed, though it was not asked for
            with contextlib.suppress(zlib.error):
                data = zlib.decompressobj(31).decompress(data, MAX_PAGE_BYTES)
        if b"OAI-PMH" in data[: 1 << 12]:
            self._has_answered = True
        elif not self._has_answered:
            raise self._bad(f"an answer by OAI-PMH, found another, {data[:60].decode(errors='replace')!r}")
        # Servers put blank lines before the answer, and notices of PHP behind it.
        ends = [each.end() for each in _CLOSE.finditer(data)]
        data = data[: ends[-1] if ends else None].lstrip()
        try:
            try:
                page, errors, is_list = _parsed(data)
            except CorpusError:
                if not self._mends:
                    self._mends = True
                    raise
                page, errors, is_list = _parsed_apart(data)
        except CorpusError as error:
            reason = str(error).partition(";")[0]
            raise web.TemporaryError(f"an answer that is not complete ({reason})") from None
        for code, message in errors:
            if code == "badResumptionToken":
                raise TokenError(message)
            if code != "noRecordsMatch":
                found = f"found the error {code}: {message:.200}"
                raise self._bad(f"a list of records, {found}", "`sets`, `first_date` and `form`")
        if not (is_list or errors):
            raise web.TemporaryError("an answer that is no list of records")
        return page


def _parsed(data: bytes) -> tuple[Page, list[tuple[str, str]], bool]:
    """Return the page of an answer, its errors (code, message), and whether it is a list at all."""
    records, errors, is_list, size = [], list[tuple[str, str]](), False, ""
    texts = {"resumptionToken": "", "responseDate": ""}
    for where, element in elements(io.BufferedReader(io.BytesIO(data)), "page", _TAGS):
        name = element.tag.removeprefix(_OAI)
        is_list |= name in ("record", "resumptionToken", "ListRecords")
        if name == "record":
            records.append(_harvested(element, where))
        elif name == "error":
            errors.append((element.get("code", ""), text_of(element)))
        elif name in texts:
            texts[name], size = text_of(element), element.get("completeListSize", size)
    stated = int(size) if re.fullmatch("[0-9]{1,9}", size) else 0
    return Page(records, texts["resumptionToken"], texts["responseDate"], stated), errors, is_list


def _parsed_apart(data: bytes) -> tuple[Page, list[tuple[str, str]], bool]:
    """Parse each record of a page that is no XML by itself, so that a damaged one is counted, none lost."""
    # What is not of the encoding, and entities that XML does not know, are replaced.
    declared = _DECLARED.match(data)
    body, encoding = data[declared.end() if declared else 0 :], declared[1].decode() if declared else "utf-8"
    try:
        text = body.decode(encoding, "replace")
    except LookupError:
        text = body.decode(errors="replace")
    text = _ENTITY.sub(lambda found: html.escape(html.unescape(found[0])), text)
    root, starts = _ROOT.search(text), [each.start() for each in _RECORD.finditer(text)]
    after = _AFTER.search(text, starts[-1]) if starts else None
    if not (root and after):
        return _parsed(text.encode())
    page, errors, is_list = _parsed((text[: starts[0]] + text[after.start() :]).encode())
    for start, end in pairwise([*starts, after.start()]):
        closed = _END.search(text, start, end)  # what stands between records is of none
        record = text[start : closed.end() if closed else end]
        try:
            page.records.extend(_parsed(f"{root[0]}{record}</{root[1]}>".encode())[0].records)
        except CorpusError as error:
            page.records.append(("", RecordError(str(error), "damaged XML")))
    return page, errors, is_list


def _harvested(element: Element, where: str) -> tuple[str, Mapping[str, Any] | RecordError | None]:
    header = element.find("{*}header")
    paper_id = "" if header is None else text_of(header.find("{*}identifier")).removeprefix("oai:arXiv.org:")
    if header is not None and header.get("status") == "deleted":
        return paper_id, None
    try:
        record = _record(next(element.iterfind("{*}metadata/*"), element))
        parse_paper(record, where, unsplit)
    except RecordError as error:
        return paper_id, error
    return record["paper_id"], record


def _record(element: Element) -> dict[str, Any]:
    names = ("id", "title", "abstract", "categories", "journal-ref", "doi")
    source: dict[str, Any] = {name: text_of(element.find(f"{{*}}{name}"), as_it_is=True) for name in names}
    source["authors_parsed"] = [
        [text_of(author.find(f"{{*}}{part}")) for part in ("keyname", "forenames", "suffix")]
        for author in element.iterfind("{*}authors/{*}author")
    ]
    if not source["authors_parsed"]:
        source["authors"] = text_of(element.find("{*}authors"))
        for _ in range(9):  # affiliations, as in "Ann Lee (1) ((1) Institute (Pond))"
            source["authors"] = re.sub(r" ?\([^()]*\)", "", source["authors"]).strip()
    source["update_date"] = text_of(element.find("{*}created"))
    versions = [{"created": text_of(each.find("{*}date"))} for each in element.iterfind("{*}version")]
    record = to_record(source | {"versions": versions})
    about = {"license": text_of(element.find("{*}license")), "versions": len(versions)}
    record["metadata"] |= {name: value for name, value in about.items() if value}
    return record
