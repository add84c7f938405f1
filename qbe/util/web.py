"""Requests over HTTP, repeated after temporary failures; downloads that resume and are verified."""

import contextlib
import hashlib
import http.client
import io
import logging
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from qbe.errors import QbeError, output_error
from qbe.util.files import make_once, sync

TIMEOUT_S = 30.0
MAX_BYTES = 256 << 20  # of a file that is downloaded
_BLOCK = 1 << 18
_REPORT_S = 10.0
_TOO_EARLY = frozenset({408, 409, 425, 429})
LASTING = FileNotFoundError, IsADirectoryError, PermissionError, ssl.SSLCertVerificationError  # asked in vain

Outcome = TypeVar("Outcome")

log = logging.getLogger(__name__)


class TemporaryError(Exception):
    """A failure that may not come again; ``wait`` are the seconds that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait, self.attempts = wait, 0


class Retries(NamedTuple):
    """How often something is attempted, and the seconds between, twice as many each time.

    The server's Retry-After counts; one that asks for more than ``longest_wait`` is not asked again.
    """

    attempts: int = 4
    pause: float = 1.0
    longest_pause: float = 60.0
    longest_wait: float = 300.0

    def run(self, attempt: Callable[[], Outcome], tell: Callable[[TemporaryError, float], object]) -> Outcome:
        """Call ``attempt`` until it raises no TemporaryError, or too often, and ``tell`` before pauses."""
        failed = 0
        while True:
            try:
                return attempt()
            except TemporaryError as error:
                pause = min(self.pause * 2**failed, self.longest_pause)
                seconds = pause if error.wait is None else error.wait
                error.attempts = failed = failed + 1
                if failed >= self.attempts or seconds > self.longest_wait:
                    raise
                tell(error, seconds)
                time.sleep(seconds)


def is_temporary_status(status: int) -> bool:
    """Return True if the next response may have another status."""
    return status >= 500 or status in _TOO_EARLY


def retry_after(headers: Mapping[str, str] | Any) -> float | None:
    """Parse ``Retry-After``, a number of seconds; None for anything else.

    >>> [retry_after({"Retry-After": value}) for value in ("15", "soon", "Thu, 01 Jan 1970 00:01:00 GMT")]
    [15.0, None, None]
    """
    value = headers.get("Retry-After") or ""
    return float(value) if value.isdecimal() else None


def reason_of(error: Exception) -> str:
    """Say in a few words why a request failed."""
    if isinstance(error, urllib.error.HTTPError):
        wait = retry_after(error.headers)
        asked = f" (asks to wait {wait:,.0f} s)" if wait else ""
        return f"HTTP status {error.code} {error.reason}{asked}"
    cause = getattr(error, "reason", error)
    if isinstance(cause, http.client.IncompleteRead):
        return "the connection broke"
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} seconds"
    reason = getattr(cause, "strerror", None) or " ".join(str(cause).split())[:200]
    return reason or type(cause).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, *answer: Any) -> Any:
        if not answer[-1].lower().startswith(("https://", "http://")):
            raise urllib.error.URLError(PermissionError("it leads to an address without https:// or http://"))
        return super().redirect_request(request, *answer)


def open_url(url: str, headers: Mapping[str, str], timeout: float) -> Any:
    """Open an address; raise TimeoutError where the head of the answer is late, though bytes may come."""
    opened: list[Any] = []

    def handler(protocol: str) -> Any:
        connection = getattr(http.client, f"{protocol}Connection")

        def connect(self: Any) -> None:
            connection.connect(self)
            opened.append(self.sock)

        kind = type("Connection", (connection,), {"connect": connect})
        opened_by = {f"{protocol.lower()}_open": lambda self, asked: self.do_open(kind, asked)}
        return type("Handler", (getattr(urllib.request, f"{protocol}Handler"),), opened_by)

    try:
        if (parts := urlsplit(url)).scheme != "file" and (not parts.hostname or parts.port == 0):
            raise ValueError("it has no host, or port 0")
        request = urllib.request.Request(url, headers={"User-Agent": f"qbe/{version('qbe')}", **headers})  # noqa: S310
        with deadline(timeout, opened):
            opener = urllib.request.build_opener(_Redirects, handler("HTTP"), handler("HTTPS"))
            return opener.open(request, timeout=timeout)
    except (ValueError, http.client.InvalidURL) as error:  # no server is asked
        raise urllib.error.URLError(PermissionError(f"it is no address ({error})")) from error


@contextlib.contextmanager
def deadline(seconds: float, sockets: Sequence[socket.socket]) -> Iterator[None]:
    """Shut the ``sockets`` that the block has opened down after some time, and raise TimeoutError."""
    ended = threading.Event()

    def end() -> None:
        ended.set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if ended.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def read_block(response: Any, count: int, *, at_once: bool = False) -> bytes:
    """Read from a response, ``at_once`` what has come; IncompleteRead where it breaks off."""
    block: bytes = response.read1(count) if at_once else response.read(count)
    if not block and getattr(response, "length", None):
        raise http.client.IncompleteRead(b"", response.length)
    return block


class Download(io.RawIOBase):
    """The bytes of a URL, kept in the file ``partial``, from which the next process goes on.

    A connection that breaks is opened again where it broke; what cannot be read raises ``fail(reason)``.
    """

    def __init__(self, url: str, partial: Path, fail: Callable[[str], QbeError]) -> None:
        self._url, self._fail = quote(url, safe=":/?#[]@!$&'()*+,;=%~"), fail
        partial.parent.mkdir(parents=True, exist_ok=True)
        self._partial, self._file = partial, partial.open("ab+")
        self._file.seek(0)
        self._response: Any = None
        self.size: int | None = None  # of the whole, where the server says so

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        elif not self.closed and self._file.tell() == 0:
            self._partial.unlink(missing_ok=True)  # nothing came
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        tell = partial(log.info, "%s: %s; trying again in %.0f s", self._url)
        block = self._file.read(len(buffer))
        if not block:
            try:
                block = Retries().run(lambda: self._received(len(buffer)), tell)
            except TemporaryError as error:
                raise self._fail(str(error)) from error
            self._file.write(block)
        buffer[: len(block)] = block
        return len(block)

    def _received(self, count: int) -> bytes:
        """Receive the next bytes, none at the end; connect first where there is no connection."""
        place = self._file.tell()
        try:
            if self._response is None:
                headers = {"Range": f"bytes={place}-"} if place else {}
                response = self._response = open_url(self._url, headers, TIMEOUT_S)
                if urlsplit(self._url).scheme == "https" != urlsplit(response.geturl()).scheme:
                    raise self._fail("expected an address of https, found one that leads to another")
                continues = place and response.status == http.client.PARTIAL_CONTENT
                if (length := getattr(response, "length", None)) is not None:
                    self.size = length + (place if continues else 0)
                while not continues and place and (block := read_block(response, min(_BLOCK, place))):
                    place -= len(block)
            return read_block(self._response, count)
        except (OSError, http.client.HTTPException) as error:
            self._response, wait = None, None
            if isinstance(error, urllib.error.HTTPError):
                if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return b""  # nothing follows what has come
                wait, passes = retry_after(error.headers), is_temporary_status(error.code)
            else:
                passes = not isinstance(getattr(error, "reason", None) or error, LASTING)
            reason = reason_of(error)
            raise (TemporaryError(reason, wait) if passes else self._fail(reason)) from error


def matches(path: Path, digest: str) -> bool:
    """Return True if a file has a digest: ``sha256:`` and its SHA-256, or ``git:`` and its id as a blob."""
    algorithm, _, expected = digest.partition(":")
    head = b"blob %d\0" % path.stat().st_size
    begun = hashlib.sha1(head, usedforsecurity=False) if algorithm == "git" else hashlib.sha256()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: begun).hexdigest() == expected


def download(url: str, target: Path, digest: str, error: type[QbeError], remedy: str) -> bool:
    """Download a file, unless ``target`` has the digest already; return whether it was downloaded.

    It continues from ``.NAME.partial``, and appears whole, or ``error`` is raised, with the ``remedy``.
    """
    partial = target.with_name(f".{target.name}.partial")

    def fail(reason: str) -> QbeError:
        return error(f"cannot download {url}: {reason}; {remedy}")

    def make() -> None:
        done, reported = 0, time.monotonic()
        with Download(url, partial, fail) as stream:
            while block := stream.read(_BLOCK):
                done += len(block)
                if done > MAX_BYTES:
                    partial.unlink()
                    raise fail(f"more than {MAX_BYTES >> 20} MiB")
                if time.monotonic() - reported >= _REPORT_S:
                    of = f" of {stream.size / 1e6:.0f}" if stream.size else ""
                    log.info("downloaded %.0f%s MB ...", done / 1e6, of)
                    reported = time.monotonic()
        if not matches(partial, digest):
            size, actual = partial.stat().st_size, hashlib.sha256(partial.read_bytes()).hexdigest()
            partial.unlink()
            raise error(
                f"{url}: expected the digest {digest}, found sha256:{actual} ({size:,} bytes); "
                "try again, the file was changed or damaged in transfer"
            )
        sync(partial)
        partial.replace(target)

    def is_made() -> bool:
        return target.is_file() and matches(target, digest)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        waits = f"another process downloads {target.name}: waiting for it ..."
        return make_once(target, is_made, make, lambda: log.info(waits))
    except OSError as failure:
        raise output_error(target, failure) from failure
