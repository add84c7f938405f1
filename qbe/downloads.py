"""Downloads that go on where they were interrupted, and are verified by digest before they are in place."""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from qbe.errors import QbeError, output_error
from qbe.files import make_once, sync

MAX_BYTES = 256 << 20
TIMEOUT_S = 30.0
ATTEMPTS = 3
REPORT_S = 10.0
BLOCK = 1 << 18

log = logging.getLogger(__name__)


class _TooLarge(http.client.HTTPException):
    pass


def matches(path: Path, digest: str) -> bool:
    """Return whether a file has a digest: ``sha256:`` and its SHA-256, or ``git:`` and its id as a blob.

    Raises ValueError for another kind of digest, OSError where the file cannot be read.

    >>> Path("empty").touch()
    >>> matches(Path("empty"), "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    True
    """
    algorithm, _, expected = digest.partition(":")
    if algorithm not in ("sha256", "git"):
        raise ValueError(f"expected a digest of sha256 or git, found {digest!r}")
    with path.open("rb") as stream:
        if algorithm == "sha256":
            return hashlib.file_digest(stream, "sha256").hexdigest() == expected
        blob = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while block := stream.read(BLOCK):
            blob.update(block)
        return blob.hexdigest() == expected


def download(
    url: str, target: Path, digest: str, error: type[QbeError], remedy: str, *, pause_s: float = 1.0
) -> bool:
    """Download a file, unless ``target`` has the digest already; return whether it was downloaded.

    What has come is kept beside the target in a hidden file, ``.NAME.partial``, where the server can continue
    (it accepts ranges of bytes): an interrupted download goes on there, in another process, too.

    Args:
        url: the address (http, https or file).
        target: the file, which appears whole and only when the digest is right.
        digest: see `matches`.
        error: the class of what is raised where the download fails or has another digest.
        remedy: the end of its message where it fails: what to do instead.
        pause_s: seconds before the second of ATTEMPTS attempts; doubled before each further one. Failures
            that may be temporary are tried again: no connection, a timeout, an incomplete response, errors
            of the server. An attempt that continues the one before does not count.

    Raises the error, OutputError when the file cannot be written.

    >>> Path("empty").touch()
    >>> digest = "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    >>> download("https://example.org/empty", Path("empty"), digest, QbeError, "")
    False
    """
    made = False

    def make() -> None:
        nonlocal made
        partial = target.with_name(f".{target.name}.partial")
        try:
            _fetch(url, partial, pause_s)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as failure:
            raise error(f"cannot download {url}: {_reason(failure)}; {remedy}") from failure
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


def _fetch(url: str, partial: Path, pause_s: float) -> None:
    """Complete the partial file; it is removed where the server cannot continue it, or sends too much."""
    failed = 0
    while True:
        before = _size(partial)
        try:
            return _get(url, partial)
        except _TooLarge:
            partial.unlink(missing_ok=True)
            raise
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as failure:
            if _is_status(failure, 416):  # nothing lies behind what has come
                return None
            failed += not 0 < before < _size(partial)
            if failed >= ATTEMPTS or not _temporary(failure):
                raise
        time.sleep(pause_s * 2 ** max(0, failed - 1))


def _get(url: str, partial: Path) -> None:
    """Write what the server sends behind what has come, or from the beginning where it does not continue."""
    has = _size(partial)
    # Addresses are qbe's own or the user's option; what comes is compared with a digest.
    request = urllib.request.Request(url, headers={"Range": f"bytes={has}-"} if has else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
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
    """Append what a server sends to a file, of ``size`` bytes in the end where the server says it; a line of
    progress every REPORT_S seconds. Raises _TooLarge for more than MAX_BYTES.
    """
    reported = time.monotonic()
    while block := response.read(BLOCK):
        stream.write(block)
        if stream.tell() > MAX_BYTES:
            raise _TooLarge(f"more than {MAX_BYTES >> 20} MiB")
        if time.monotonic() - reported >= REPORT_S:
            of = f" of {size / 1e6:.0f}" if size else ""
            log.info("downloaded %.0f%s MB ...", stream.tell() / 1e6, of)
            reported = time.monotonic()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _is_status(error: Exception, code: int) -> bool:
    return isinstance(error, urllib.error.HTTPError) and error.code == code


def _temporary(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code == 429
    return not isinstance(getattr(error, "reason", None), FileNotFoundError)


def _reason(error: Exception) -> str:
    match error:
        case urllib.error.HTTPError():
            return f"HTTP status {error.code} {error.reason}"
        case urllib.error.URLError():
            return str(error.reason)
        case http.client.IncompleteRead():
            return "the response was incomplete"
        case TimeoutError():
            return f"no response within {TIMEOUT_S:g} seconds"
        case _:
            return str(error) or type(error).__name__
