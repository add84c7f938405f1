"""Bytes of a pack or a registry from a place on: of a file, an address, or a repository of Hugging Face."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import quote, urlsplit

from qbe.corpus.streams import open_address
from qbe.errors import MissingDependencyError, PackError
from qbe.index.packs.layout import Reads, read_exactly
from qbe.util import web
from qbe.util.files import HUB, is_remote

WEB = ("http://", "https://")
HUB_FILE = "index.tar.zst"
"""The file of a repository that is meant where none is named."""

RETRIES, FIRST_RETRIES = web.Retries(), web.Retries(attempts=3)
"""For connections without a byte that comes of them: later, and in the beginning."""
_NEAR = 1 << 20
"""Bytes that are read and thrown away rather than asking for a later place."""
_BLOCK = 1 << 20
_KEPT = ":/?#[]@!$&'()*+,;=%"
"""Characters of an address that are what they are; others, such as blanks, are percent-encoded."""
_HUB = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>[\w./-]+))?", re.ASCII
)

log = logging.getLogger(__name__)


class _Bytes(Reads, Protocol):
    """What comes from one place on."""

    def close(self) -> object:
        """End the connection."""


class Source:
    """The bytes of an address or a file, read from any place on. A connection that breaks is made again, from
    the place that it came to.

    >>> _ = Path("a.txt").write_text("stone")
    >>> with contextlib.closing(Source("a.txt")) as source:
    ...     source.move(2)
    ...     source.read(9)
    b'one'
    """

    def __init__(self, address: str) -> None:
        """Raises PackError for an address that none can be."""
        self.address, self.place = address, 0
        self.url, self._headers = _web_address(address)
        self._bytes: _Bytes | None = None
        self._has_read = False
        self._skips = True
        """Whether the server answers requests for a part of a file."""

    def close(self) -> None:
        """End the connection, if there is one."""
        opened, self._bytes = self._bytes, None
        if opened is not None:
            with contextlib.suppress(Exception):
                opened.close()

    def move(self, place: int) -> None:
        """Go on from another place."""
        ahead = place - self.place
        if self._bytes is not None and ahead >= 0 and (ahead <= _NEAR or not self._skips):
            while self.place < place and self.read(min(_BLOCK, place - self.place)):
                pass
        else:
            self.close()
            self.place = place

    def read(self, count: int) -> bytes:
        """At most so many bytes, none at the end. Raises PackError where the connection fails for good."""
        retries = RETRIES if self._has_read else FIRST_RETRIES
        try:
            part = retries.run(lambda: self._attempt(count), tell=self._tell)
        except web.TemporaryError as error:
            raise _failed(self.address, str(error)) from error
        self.place += len(part)
        self._has_read = True
        return part

    def _tell(self, error: Exception, seconds: float) -> None:
        log.info("%s: %s; trying again in %.0f s", self.address, error, seconds)

    def _attempt(self, count: int) -> bytes:
        try:
            if self._bytes is None:
                self._bytes = self._open()
            part = self._bytes.read(count)
            if not part and getattr(self._bytes, "length", None):  # http.client says nothing
                raise http.client.IncompleteRead(b"", self._bytes.length)  # type: ignore[attr-defined]
            return part
        except MissingDependencyError:
            raise
        except Exception as error:  # fsspec's file systems raise errors of their own
            self.close()
            if isinstance(error, PackError):
                raise
            reason = web.reason_of(error)
            if web.is_temporary(error):
                raise web.TemporaryError(reason, web.wait_of(error)) from error
            raise _failed(self.address, reason) from error

    def _open(self) -> _Bytes:
        """A connection that begins at the place."""
        if not is_remote(self.address):
            file: IO[bytes] = Path(self.address).open("rb")  # noqa: SIM115
            file.seek(self.place)
            return file
        if not self.url.startswith(WEB):
            file = open_address(self.address)
            file.seek(self.place)
            return file
        response = web.open_from(self.url, self.place, self._headers)
        if urlsplit(self.url).scheme == "https" != urlsplit(response.geturl()).scheme:
            raise PackError(f"{self.address}: expected an address of https, found one that leads to another")
        self._skips = response.status == http.client.PARTIAL_CONTENT
        if not self._skips:
            left = self.place
            while left and (part := response.read(min(_BLOCK, left))):
                left -= len(part)
            if left:
                raise http.client.IncompleteRead(b"", left)
        return response  # type: ignore[no-any-return]


def read_whole(address: str, most: int) -> bytes:
    """All bytes of a small file at an address; raises PackError for one of more than ``most``."""
    with contextlib.closing(Source(address)) as source:
        data = read_exactly(source, most + 1)
    if len(data) > most:
        raise PackError(f"{address}: expected at most {most >> 20} MiB, found more; check the address")
    return data


def _web_address(address: str) -> tuple[str, dict[str, str]]:
    """Where an address leads, with headers that it needs: of a repository, to its file."""
    if not address.startswith(HUB):
        return (quote(address, safe=_KEPT) if address.startswith(WEB) else address), {}
    match = _HUB.fullmatch(address)
    if match is None:
        raise PackError(
            f"expected {HUB}OWNER/NAME, or {HUB}OWNER/NAME@REVISION/FILE, found {address}; check it"
        )
    from huggingface_hub import get_token
    from huggingface_hub.constants import ENDPOINT

    token = get_token()
    path = quote(f"{match['repo']}/resolve/{match['revision'] or 'main'}/{match['file'] or HUB_FILE}")
    return f"{ENDPOINT}/datasets/{path}", {"Authorization": f"Bearer {token}"} if token else {}


def _failed(address: str, reason: str) -> PackError:
    return PackError(f"cannot read {address}: {reason}; check the address and the network")
