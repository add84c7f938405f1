"""Requests over HTTP: what fails for a while only, after which pauses it is tried again, and when no more.

Downloads of files go on where they were interrupted, and are verified by digest before they are in place.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import logging
import os
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from qbe.errors import QbeError, output_error
from qbe.util.files import make_once, sync

TIMEOUT_S = 30.0
_BLOCK = 1 << 18
_TOO_EARLY = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may be answered."""

MAX_BYTES = 256 << 20
"""Of a file that is downloaded."""
REPORT_S = 10.0

_FAILURES = (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError)
"""Of the network, and not of the file that is written."""

Outcome = TypeVar("Outcome")

log = logging.getLogger(__name__)


class TemporaryError(Exception):
    """An attempt that failed; the next may not.

    ``wait`` are the seconds that the server asks for. An attempt that made ``progress`` does not count.
    ``attempts`` counts those that failed.
    """

    def __init__(self, reason: str, wait: float | None = None, *, progress: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.progress, self.attempts = wait, progress, 0


class TooLargeError(Exception):
    """A response of more bytes than allowed."""


class Retries(NamedTuple):
    """How often something is attempted, and the seconds between.

    The server's Retry-After counts; without it ``pause`` seconds pass before the second attempt, twice as
    many before each further one, ``longest_pause`` at most, each made longer by a random share of up to
    ``spread``. A server that asks for more than ``longest_wait`` seconds is not asked again.
    """

    attempts: int = 6
    pause: float = 1.0
    longest_pause: float = 60.0
    longest_wait: float = 300.0
    spread: float = 0.0

    def run(
        self,
        attempt: Callable[[], Outcome],
        *,
        sleep: Callable[[float], object] | None = None,
        tell: Callable[[TemporaryError, float], object] = lambda *_: None,
    ) -> Outcome:
        """Call ``attempt`` until it does not raise TemporaryError; raise the last one when all is given up.

        ``tell`` is called with the error and the seconds before each pause. ``sleep`` replaces `time.sleep`;
        a true result ends the attempts.
        """
        failed = 0
        while True:
            try:
                return attempt()
            except TemporaryError as error:
                failed += not error.progress
                pause = min(self.pause * 2 ** max(failed - 1, 0), self.longest_pause)
                seconds = pause * random.uniform(1, 1 + self.spread) if error.wait is None else error.wait
                error.attempts = failed
                if failed >= self.attempts or seconds > self.longest_wait:
                    raise
                tell(error, seconds)
                if (sleep or time.sleep)(seconds):
                    raise


def is_temporary_status(status: int) -> bool:
    """Return True if the next response may have another status."""
    return status >= 500 or status in _TOO_EARLY


def is_temporary(error: Exception) -> bool:
    """Return True if a request that failed may succeed when repeated: not after a refusal or a bad
    certificate.
    """
    if isinstance(error, urllib.error.HTTPError):
        return is_temporary_status(error.code)
    reason = getattr(error, "reason", None) or error
    lasting = FileNotFoundError, IsADirectoryError, PermissionError, ssl.SSLCertVerificationError
    return isinstance(error, OSError | http.client.HTTPException) and not isinstance(reason, lasting)


def wait_of(error: Exception) -> float | None:
    """Return the seconds that a server asks to wait, or None."""
    return retry_after(error.headers) if isinstance(error, urllib.error.HTTPError) else None


def retry_after(headers: Mapping[str, str] | Any) -> float | None:
    """Parse ``Retry-After``, a number of seconds or a date; None for anything else.

    >>> [retry_after({"Retry-After": value}) for value in ("1.5", "soon", "Thu, 01 Jan 1970 00:01:00 GMT")]
    [1.5, None, 0.0]
    """
    value = headers.get("Retry-After") or ""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if seconds < float("inf") else None


def reason_of(error: Exception) -> str:
    """Say in a few words why a request failed."""
    match error:
        case urllib.error.HTTPError():
            wait = wait_of(error)
            asked = f" (asks to wait {wait:,.0f} s)" if wait else ""
            return f"HTTP status {error.code} {error.reason}{asked}"
        case urllib.error.URLError(reason=Exception() as reason):
            return reason_of(reason)
        case http.client.IncompleteRead():
            return "the connection broke"
        case TimeoutError():
            return f"no answer within {TIMEOUT_S:g} seconds"
        case OSError(errno=int() as number) if number > 0 and not isinstance(error, ssl.SSLError):
            return os.strerror(number)
        case OSError() if error.strerror:
            return error.strerror
        case _:
            return " ".join(str(error).split())[:200] or type(error).__name__


class _NotRedirected(urllib.request.HTTPRedirectHandler):
    """Return redirects as they are."""

    def redirect_request(self, *_: object) -> None:
        return None


_direct = functools.cache(lambda: urllib.request.build_opener(_NotRedirected()))
_agent = functools.cache(lambda: f"qbe/{version('qbe')}")


def _request(url: str, headers: Mapping[str, str], data: bytes | None = None) -> urllib.request.Request:
    """Make a request whose headers are not sent to another server after a redirect."""
    # Addresses are qbe's own, or the user's choice.
    request = urllib.request.Request(url, data, {"User-Agent": _agent()})  # noqa: S310
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    return request


def open_from(url: str, place: int | None, headers: Mapping[str, str] | None = None) -> Any:
    """Open a URL, from an offset if the server supports ranges (status 206); None asks for the whole."""
    request = _request(url, headers or {})
    if place is not None:
        request.add_header("Range", f"bytes={place}-")
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310


class Answer(NamedTuple):
    """A whole response of any status."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


def ask(
    url: str,
    *,
    most: int,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float,
    within: float | None = None,
    redirected: bool = True,
) -> Answer:
    """Send a request, a POST if there is ``data``, and return the response, whatever its status.

    ``timeout`` are seconds without a byte, ``within`` seconds for the whole response. Raises TooLargeError
    beyond ``most`` bytes, OSError or http.client.HTTPException where there is no whole response.
    """
    until = None if within is None else time.monotonic() + within
    open_url = urllib.request.urlopen if redirected else _direct().open
    body = bytearray()
    try:
        response = open_url(_request(url, headers or {}, data), timeout=timeout)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        while part := response.read1(_BLOCK):
            body += part
            if len(body) > most:
                raise TooLargeError(f"more than {most:,} bytes")
            if until is not None and time.monotonic() > until:
                raise TimeoutError
        if left := getattr(response, "length", None):  # http.client says nothing
            raise http.client.IncompleteRead(bytes(body), left)
        return Answer(response.status, response.reason, response.headers, bytes(body))


def matches(path: Path, digest: str) -> bool:
    """Return True if a file has a digest: ``sha256:`` and its SHA-256, or ``git:`` and its id as a blob."""
    algorithm, _, expected = digest.partition(":")
    if algorithm not in ("sha256", "git"):
        raise ValueError(f"expected a digest of sha256 or git, found {digest!r}")
    with path.open("rb") as stream:
        if algorithm == "sha256":
            return hashlib.file_digest(stream, "sha256").hexdigest() == expected
        blob = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while block := stream.read(_BLOCK):
            blob.update(block)
        return blob.hexdigest() == expected


def download(url: str, target: Path, digest: str, error: type[QbeError], remedy: str) -> bool:
    """Download a file, unless ``target`` has the digest already; return whether it was downloaded.

    An interrupted download continues from the hidden file ``.NAME.partial`` where the server supports ranges;
    temporary failures are tried again. The file appears whole and with the right digest, or ``error`` is
    raised, which ends with ``remedy``.
    """
    made = False

    def make() -> None:
        nonlocal made
        partial = target.with_name(f".{target.name}.partial")
        try:
            Retries(attempts=3).run(lambda: _fetch(url, partial))
        except (TemporaryError, TooLargeError, *_FAILURES) as failure:
            raise error(f"cannot download {url}: {reason_of(failure)}; {remedy}") from failure
        if not matches(partial, digest):
            size, actual = partial.stat().st_size, hashlib.sha256(partial.read_bytes()).hexdigest()
            partial.unlink()
            raise error(
                f"{url}: expected the digest {digest}, found sha256:{actual} ({size:,} bytes); "
                "try again, the file was changed or damaged in transfer"
            )
        sync(partial)
        partial.replace(target)
        made = True

    def waits() -> None:
        log.info("another process downloads %s: waiting for it ...", target.name)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        make_once(target, lambda: target.is_file() and matches(target, digest), make, waits)
    except OSError as failure:
        raise output_error(target, failure) from failure
    return made


def _fetch(url: str, partial: Path) -> None:
    """Complete the partial file; remove it where the server cannot continue it, or sends too much."""
    before = _size(partial)
    try:
        _get(url, partial)
    except TooLargeError:
        partial.unlink(missing_ok=True)
        raise
    except _FAILURES as failure:
        if isinstance(failure, urllib.error.HTTPError) and failure.code == 416:
            return  # nothing lies behind what has come
        if not is_temporary(failure):
            raise
        progress = 0 < before < _size(partial)
        raise TemporaryError(reason_of(failure), wait_of(failure), progress=progress) from failure


def _get(url: str, partial: Path) -> None:
    """Write what the server sends behind what has come, or from the beginning where it does not continue."""
    has = _size(partial)
    with open_from(url, has or None) as response:
        continues = getattr(response, "status", None) == 206
        length = response.headers.get("Content-Length", "")
        size = (has if continues else 0) + int(length) if length.isdecimal() else None
        whole = False
        try:
            with partial.open("ab" if continues else "wb") as stream:
                _copy(response, stream, size)
                whole = size is None or stream.tell() >= size
        finally:
            if not (whole or continues or response.headers.get("Accept-Ranges") == "bytes"):
                partial.unlink()
        if not whole:
            raise http.client.IncompleteRead(b"", (size or 0) - _size(partial))


def _copy(response: IO[bytes], stream: IO[bytes], size: int | None) -> None:
    reported = time.monotonic()
    while block := response.read(_BLOCK):
        stream.write(block)
        if stream.tell() > MAX_BYTES:
            raise TooLargeError(f"more than {MAX_BYTES >> 20} MiB")
        if time.monotonic() - reported >= REPORT_S:
            of = f" of {size / 1e6:.0f}" if size else ""
            log.info("downloaded %.0f%s MB ...", stream.tell() / 1e6, of)
            reported = time.monotonic()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
