"""Downloads that are verified by digest before they are written."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path

from qbe.errors import DatasetError
from qbe.files import atomic_file

MAX_BYTES = 256 << 20
TIMEOUT_S = 30.0
ATTEMPTS = 3


def matches(data: bytes, digest: str) -> bool:
    """Return whether data have a digest: ``sha256:`` and their SHA-256, or ``git:`` and their id as a blob.

    Raises ValueError for another kind of digest.

    >>> matches(b"", "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    True
    """
    algorithm, _, expected = digest.partition(":")
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest() == expected
    if algorithm == "git":
        header = b"blob %d\0" % len(data)
        return hashlib.sha1(header + data, usedforsecurity=False).hexdigest() == expected
    raise ValueError(f"expected a digest of sha256 or git, found {digest!r}")


def download(url: str, target: Path, digest: str, *, pause_s: float = 1.0) -> bool:
    """Download a file, unless ``target`` has the digest already; return whether it was downloaded.

    Args:
        url: the address.
        target: the file, which is written atomically and only when the digest is right.
        digest: see `matches`.
        pause_s: seconds before the second of ATTEMPTS attempts; doubled before each further one. Failures
            that may be temporary are tried again: no connection, a timeout, an incomplete response, errors
            of the server.

    Raises DatasetError when the download fails or has another digest, OutputError when the file cannot be
    written.

    >>> Path("empty").touch()
    >>> download("https://example.org/empty", Path("empty"), "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    False
    """
    if target.is_file() and matches(target.read_bytes(), digest):
        return False
    data = _fetch(url, pause_s)
    if not matches(data, digest):
        actual = hashlib.sha256(data).hexdigest()
        raise DatasetError(
            f"{url}: expected the digest {digest}, found sha256:{actual} ({len(data):,} bytes); "
            "try again, the file was changed or damaged in transfer"
        )
    with atomic_file(target) as stream:
        stream.write(data)
    return True


def _fetch(url: str, pause_s: float) -> bytes:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _get(url)
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS or not _temporary(error):
                raise DatasetError(
                    f"cannot download {url}: {_reason(error)}; check the network, or fetch the data set "
                    "by hand and give its folder as `source`"
                ) from error
            time.sleep(pause_s * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def _get(url: str) -> bytes:
    # Addresses are qbe's own or the user's option; what comes is compared with a digest.
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310
        length = response.headers.get("Content-Length", "")
        data: bytes = response.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DatasetError(f"{url}: expected at most {MAX_BYTES >> 20} MiB, found more; check the address")
    if length.isdigit() and len(data) < int(length):
        raise http.client.IncompleteRead(data, int(length) - len(data))
    return data


def _temporary(error: Exception) -> bool:
    return not isinstance(error, urllib.error.HTTPError) or error.code >= 500 or error.code == 429


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
