"""Files from the web, verified by digest before they appear."""

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
    """Whether data have a digest: ``sha256:`` of the data, or ``git:``, the id git gives them as a blob."""
    algorithm, _, expected = digest.partition(":")
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest() == expected
    if algorithm == "git":
        header = b"blob %d\0" % len(data)
        return hashlib.sha1(header + data, usedforsecurity=False).hexdigest() == expected
    raise ValueError(f"expected a digest of sha256 or git, found {digest!r}")


def download(url: str, target: Path, digest: str, *, pause_s: float = 1.0) -> bool:
    """Fetch a file, unless ``target`` has the digest already; returns whether it was fetched.

    ``target`` appears whole and verified, or not at all. Failures that may pass (no connection, a
    timeout, an answer cut short, the server's own errors) are tried again, ATTEMPTS times in all, with
    ``pause_s`` seconds between, doubled each time. Raises DatasetError when the file cannot be had or
    has another digest, OutputError when it cannot be written.
    """
    if target.is_file() and matches(target.read_bytes(), digest):
        return False
    data = _fetch(url, pause_s)
    if not matches(data, digest):
        found = hashlib.sha256(data).hexdigest()
        raise DatasetError(
            f"{url}: expected the digest {digest}, found sha256:{found} ({len(data):,} bytes); "
            "try again, the file was changed or damaged on its way"
        )
    with atomic_file(target) as stream:
        stream.write(data)
    return True


def _fetch(url: str, pause_s: float) -> bytes:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _get(url)
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS or not _may_pass(error):
                raise DatasetError(
                    f"cannot download {url}: {_reason(error)}; check the network, or fetch the data set "
                    "by hand and name its folder with --source"
                ) from error
            time.sleep(pause_s * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        length = response.headers.get("Content-Length", "")
        data: bytes = response.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DatasetError(f"{url}: expected at most {MAX_BYTES >> 20} MiB, found more; check the address")
    if length.isdigit() and len(data) < int(length):
        raise http.client.IncompleteRead(data, int(length) - len(data))
    return data


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, urllib.error.HTTPError) or error.code >= 500 or error.code == 429


def _reason(error: Exception) -> str:
    match error:
        case urllib.error.HTTPError():
            return f"HTTP status {error.code} {error.reason}"
        case urllib.error.URLError():
            return str(error.reason)
        case http.client.IncompleteRead():
            return "the answer was cut short"
        case TimeoutError():
            return f"no answer within {TIMEOUT_S:g} seconds"
        case _:
            return str(error) or type(error).__name__
