"""A repository that is asked by OAI-PMH 2.0: one page of records at a time, no faster than it wants.

The protocol is that of openarchives.org/OAI/2.0/openarchivesprotocol.htm (Lagoze et al., 2002).
"""

from __future__ import annotations

import http.client
import io
import logging
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from qbe.corpus.xml_formats import elements, text_of
from qbe.errors import CorpusError, UsageError
from qbe.feeds.harvest import ARXIV, INTERVAL_S
from qbe.feeds.harvest.records import HarvestedRecord, harvested
from qbe.util import web

log = logging.getLogger("qbe.feeds.harvest")

RETRIES = web.Retries(attempts=8, pause=5.0, longest_pause=300.0, longest_wait=6 * 3600.0)
"""A server that asks to wait longer is asked another day."""

TIMEOUT_S = 120.0
MAX_PAGE_BYTES = 256 << 20
_OAI = "{http://www.openarchives.org/OAI/2.0/}"
_TAGS = frozenset(f"{_OAI}{name}" for name in ("record", "resumptionToken", "error", "responseDate"))
_ROOT_WITHIN = 1 << 12
"""Bytes in which the root of an answer begins."""


class Page(NamedTuple):
    """A page of a list: its records, the token of the next page ('' at the end), and the server's date."""

    records: list[HarvestedRecord]
    token: str
    date: str


class TokenError(Exception):
    """The server does not know a resumption token, or no longer."""


class Repository:
    """A repository at an address, asked at most once in ``interval`` seconds.

    No answer, an answer that breaks off, XML that is not complete, and what the server calls temporary
    (HTTP status 5xx, 429) are tried again, see RETRIES, after as many seconds as ``Retry-After`` says. So are
    a host that is not known and an answer that is not OAI-PMH, once the repository has answered; before that
    the address is taken to be wrong.

    >>> Repository("ftp://example.org/oai")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected an `address` that begins with https:// or http://, found ftp://example...
    """

    def __init__(
        self,
        address: str = ARXIV,
        interval: float = INTERVAL_S,
        *,
        pause: float = RETRIES.pause,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """``pause`` takes the place of that of RETRIES, and ``sleep`` that of `time.sleep`."""
        if not address.lower().startswith(("https://", "http://")):
            raise UsageError(
                f"expected an `address` that begins with https:// or http://, found {address}; check it"
            )
        if not 0 <= interval < float("inf"):
            raise UsageError(f"expected an `interval` of 0 seconds or more, found {interval:g}")
        self.address = address
        self._interval, self._retries, self._sleep = interval, RETRIES._replace(pause=pause), sleep
        self._next, self._has_answered = 0.0, False

    def records(self, arguments: Mapping[str, str]) -> Page:
        """The page of ``ListRecords`` with these arguments: of a list its first page, by ``metadataPrefix``,
        ``set`` and ``from``, or the one of a ``resumptionToken``. A list without records is an empty page.

        Raises TokenError; CorpusError where the server refuses the arguments, or does not answer.
        """
        try:
            return self._retries.run(
                lambda: self._page(self._answer(arguments)), sleep=self._sleep, tell=self._tell
            )
        except web.TemporaryError as error:
            raise CorpusError(
                f"{self.address}: expected an answer, found {error} ({error.attempts} attempts); what "
                "was harvested is kept: run the same command later to go on"
            ) from None

    def _tell(self, error: Exception, seconds: float) -> None:
        log.warning("%s: %s; asking again in %.0f s", self.address, error, seconds)

    def _answer(self, arguments: Mapping[str, str]) -> bytes:
        """The body of an answer; of an error too, where the protocol's own error may be in it."""
        self._sleep(max(0.0, self._next - time.monotonic()))
        url = f"{self.address}?{urllib.parse.urlencode({'verb': 'ListRecords', **arguments})}"
        try:
            answer = web.ask(url, headers={"Accept": "text/xml"}, timeout=TIMEOUT_S, most=MAX_PAGE_BYTES)
        except web.TooLargeError:
            raise CorpusError(
                f"{self.address}: expected a page of at most {MAX_PAGE_BYTES >> 20} MiB, found more; "
                "check `address`"
            ) from None
        except http.client.IncompleteRead:
            raise web.TemporaryError("an answer that breaks off") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            if isinstance(reason, (socket.gaierror, ssl.SSLCertVerificationError)) and not self._has_answered:
                raise CorpusError(
                    f"{self.address}: expected an answer, found none ({reason}); check `address`"
                ) from None
            raise web.TemporaryError(f"no answer ({reason})") from None
        finally:
            self._next = time.monotonic() + self._interval
        if web.is_temporary_status(answer.status):
            raise web.TemporaryError(f"HTTP status {answer.status}", web.retry_after(answer.headers))
        if answer.status >= 300 and b"<error" not in answer.body:
            raise CorpusError(
                f"{self.address}: expected the records of a repository, found HTTP status {answer.status} "
                f"{answer.reason}; check `address`"
            )
        return answer.body

    def _page(self, data: bytes) -> Page:
        """The page of an answer."""
        if b"OAI-PMH" in data[:_ROOT_WITHIN]:
            self._has_answered = True
        elif not self._has_answered:
            begin = data[:60].decode(errors="replace")
            raise CorpusError(
                f"{self.address}: expected an answer by OAI-PMH, found another, {begin!r}; check `address`"
            )
        records, texts, errors = [], {"resumptionToken": "", "responseDate": ""}, []
        is_list = False
        try:
            for where, element in elements(io.BufferedReader(io.BytesIO(data)), "page", _TAGS):
                name = element.tag.removeprefix(_OAI)
                is_list |= name in ("record", "resumptionToken")
                if name == "record":
                    records.append(harvested(element, where))
                elif name == "error":
                    errors.append((element.get("code", ""), text_of(element)))
                else:
                    texts[name] = text_of(element)
        except CorpusError as error:
            reason = str(error).partition(";")[0]
            raise web.TemporaryError(f"an answer that is not complete ({reason})") from None
        for code, message in errors:
            if code == "badResumptionToken":
                raise TokenError(message)
            if code != "noRecordsMatch":
                raise CorpusError(
                    f"{self.address}: expected a list of records, found the error {code}: {message:.200}; "
                    "check `sets`, `first_date` and `form`"
                )
        if not (is_list or errors):
            raise web.TemporaryError("an answer that is no list of records")
        return Page(records, texts["resumptionToken"], texts["responseDate"])
