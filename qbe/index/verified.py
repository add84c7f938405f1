"""Digests of files, computed once and remembered until the file changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

from qbe.files import cache_folder

SMALL = 1 << 20
"""Bytes below which a file is read each time: that takes a millisecond."""

DEFER = "QBE_VERIFY"
"""The environment variable that, with the value ``small``, puts off verifying larger files."""

MEMORY = "verified"
"""The file, in the cache folder, of large files with their digests: device, inode, size, times of the last
change of content and of state in nanoseconds, and the digest, a line each. What a failing disk changes, only
`qbe.index.checking` tells.
"""
_MOST = 1 << 18
"""Bytes of it, from which on all are forgotten: some 1,800 files."""

_RECENT = 2_000_000_000
"""Nanoseconds during which a file may change again without another time: it is not remembered so soon."""

_BLOCK = 1 << 20


def digest_of(descriptor: int) -> str:
    """The hexadecimal SHA-256 of an open file, read from its beginning; remembered. Raises OSError."""
    digest, place = hashlib.sha256(), 0
    status = os.fstat(descriptor)
    while block := os.pread(descriptor, _BLOCK, place):
        digest.update(block)
        place += len(block)
    if status.st_size >= SMALL:
        _remember(status, digest.hexdigest())
    return digest.hexdigest()


def is_put_off(descriptor: int) -> bool:
    """Whether an open file is a large one, and the user has put off verifying these."""
    return os.environ.get(DEFER) == "small" and os.fstat(descriptor).st_size >= SMALL


def has_digest(descriptor: int, digest: str) -> bool:
    """Whether an open file has a SHA-256; of a large one that had it when it was last read and was not
    changed since, without reading it.

    >>> with open("a.txt", "w+b") as stream:
    ...     has_digest(stream.fileno(), hashlib.sha256(b"").hexdigest())
    True
    """
    status = os.fstat(descriptor)
    if status.st_size >= SMALL and _line(status, digest) in _remembered():
        return True
    return digest_of(descriptor) == digest


def _line(status: os.stat_result, digest: str) -> bytes:
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{status.st_dev} {status.st_ino} {status.st_size} {times} {digest}\n".encode()


def _remembered() -> set[bytes]:
    """The lines of the memory; none where it cannot be read."""
    try:
        return set((cache_folder() / MEMORY).read_bytes().splitlines(keepends=True))
    except OSError:
        return set()


def _remember(status: os.stat_result, digest: str) -> None:
    """Add a line, in one write; where that cannot be, the file is read again next time."""
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _RECENT:
        return
    path = cache_folder() / MEMORY
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size > _MOST:
                os.ftruncate(descriptor, 0)
            os.write(descriptor, _line(status, digest))
        finally:
            os.close(descriptor)
