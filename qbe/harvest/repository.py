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
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from qbe.corpus.xmlstream import elements, text_of
from qbe.errors import CorpusError, UsageError
from qbe.harvest import ARXIV, INTERVAL_S
from qbe.harvest.records import HarvestedRecord, harvested

log = logging.getLogger("qbe.harvest")

ATTEMPTS = 8
PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""Before the second of ATTEMPTS attempts, doubled before each further one, where the server does not say."""

LONGEST_WAIT_S = 6 * 3600.0
"""A server that asks to wait longer is asked another day."""

TIMEOUT_S = 120.0
MAX_PAGE_BYTES = 256 << 20
_OAI = "{http://www.openarchives.org/OAI/2.0/}"
_TAGS = frozenset(f"{_OAI}{name}" for name in ("record", "resumptionToken", "error", "responseDate"))
_TOO_MANY = 429
_ROOT_WITHIN = 1 << 12
"""Bytes in which the root of an answer begins."""


class Page(NamedTuple):
    """A page of a list: its records, the token of the next page ('' at the end), and the server's date."""

    records: list[HarvestedRecord]
    token: str
    date: str


class TokenError(Exception):
    """The server does not know a resumption token, or no longer."""


class _FaultError(Exception):
    """What may be gone at the next attempt; ``wait`` are the seconds that the server asks for, if it does."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class Repository:
    """A repository at an address, asked at most once in ``interval`` seconds.

    No answer, an answer that breaks off, XML that is not complete, and what the server calls temporary
    (HTTP status 5xx, 429) are tried again, ATTEMPTS times, after as many seconds as ``Retry-After`` says. So
    are a host that is not known and an answer that is not OAI-PMH, once the repository has answered; before
    that the address is taken to be wrong.

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
        pause: float = PAUSE_S,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """``pause`` takes the place of PAUSE_S, and ``sleep`` that of `time.sleep`."""
        if not address.lower().startswith(("https://", "http://")):
            raise UsageError(
                f"expected an `address` that begins with https:// or http://, found {address}; check it"
            )
        if not 0 <= interval < float("inf"):
            raise UsageError(f"expected an `interval` of 0 seconds or more, found {interval:g}")
        self.address = address
        self._interval, self._pause, self._sleep = interval, pause, sleep
        self._next, self._has_answered = 0.0, False
        self._agent = f"qbe/{version('qbe')} (OAI-PMH harvester)"

    def records(self, arguments: Mapping[str, str]) -> Page:
        """The page of ``ListRecords`` with these arguments: of a list its first page, by ``metadataPrefix``,
        ``set`` and ``from``, or the one of a ``resumptionToken``. A list without records is an empty page.

        Raises TokenError; CorpusError where the server refuses the arguments, or does not answer.
        """
        for attempt in range(ATTEMPTS):
            try:
                return self._page(self._answer(arguments))
            except _FaultError as error:
                wait = min(self._pause * 2**attempt, LONGEST_PAUSE_S) if error.wait is None else error.wait
                if attempt == ATTEMPTS - 1 or wait > LONGEST_WAIT_S:
                    raise CorpusError(
                        f"{self.address}: expected an answer, found {error} ({attempt + 1} attempts); what "
                        "was harvested is kept: run the same command later to go on"
                    ) from None
                log.warning("%s: %s; asking again in %.0f s", self.address, error, wait)
                self._sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, arguments: Mapping[str, str]) -> bytes:
        """The body of an answer; of an error too, where the protocol's own error may be in it."""
        self._sleep(max(0.0, self._next - time.monotonic()))
        query = urllib.parse.urlencode({"verb": "ListRecords", **arguments})
        request = urllib.request.Request(  # noqa: S310  (the scheme was checked)
            f"{self.address}?{query}", headers={"User-Agent": self._agent, "Accept": "text/xml"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                data: bytes = response.read(MAX_PAGE_BYTES + 1)
                length = response.headers.get("Content-Length", "")
        except urllib.error.HTTPError as error:
            with error:
                if error.code < 500 and error.code != _TOO_MANY:
                    return self._refusal(error)
                raise _FaultError(f"HTTP status {error.code}", _seconds(error.headers)) from None
        except http.client.IncompleteRead:
            raise _FaultError("an answer that breaks off") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            if isinstance(reason, (socket.gaierror, ssl.SSLCertVerificationError)) and not self._has_answered:
                raise CorpusError(
                    f"{self.address}: expected an answer, found none ({reason}); check `address`"
                ) from None
            raise _FaultError(f"no answer ({reason})") from None
        finally:
            self._next = time.monotonic() + self._interval
        if len(data) > MAX_PAGE_BYTES:
            raise CorpusError(
                f"{self.address}: expected a page of at most {MAX_PAGE_BYTES >> 20} MiB, found more; "
                "check `address`"
            )
        if length.isdecimal() and len(data) < int(length):
            raise _FaultError("an answer that breaks off")
        return data

    def _refusal(self, error: urllib.error.HTTPError) -> bytes:
        data = error.read(1 << 20)
        if b"<error" in data:
            return data
        raise CorpusError(
            f"{self.address}: expected the records of a repository, found HTTP status {error.code} "
            f"{error.reason}; check `address`"
        ) from None

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
            raise _FaultError(f"an answer that is not complete ({reason})") from None
        for code, message in errors:
            if code == "badResumptionToken":
                raise TokenError(message)
            if code != "noRecordsMatch":
                raise CorpusError(
                    f"{self.address}: expected a list of records, found the error {code}: {message:.200}; "
                    "check `sets`, `first_date` and `form`"
                )
        if not (is_list or errors):
            raise _FaultError("an answer that is no list of records")
        return Page(records, texts["resumptionToken"], texts["responseDate"])


def _seconds(headers: Any) -> float | None:
    """What ``Retry-After`` says, seconds or a date; None where it says nothing that can be understood.

    >>> _seconds({"Retry-After": "30"}), _seconds({"Retry-After": "soon"}), _seconds({})
    (30.0, None, None)
    """
    text = (headers.get("Retry-After") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
