"""The files of a segment, opened once and read from their descriptors, whatever happens to their names."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import mmap
import os
import re
import resource
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, InputError, UsageError, input_error
from qbe.util.files import cache_folder

DESCRIPTORS = Path("/proc/self/fd")
"""Where Linux opens a file again by a descriptor of this process, also one whose name is gone."""

_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([|<][a-z]\d)', "
    rb"'fortran_order': False, 'shape': \((\d+),(?: (\d+))?\), \} *\n",
    re.DOTALL,
)
"""Of a ``.npy`` file of version 1.0 with one or two axes, in the words of numpy."""


class OpenFiles:
    """The files of a segment's folder.

    Those that the manifest names are opened at once, their sizes compared, and their content is compared with
    the manifest's digests when it is first read (see `qbe.index.openfiles`). All reading goes by descriptors:
    a writer that replaces or removes the folder changes nothing. Reading raises UsageError once they are
    closed; arrays live on. Several threads may use it.

    >>> files = OpenFiles.of(index.folder)
    >>> files.array("sentences.npy", "int64", 1)[:3].tolist()
    [0, 5, 10]
    """

    def __init__(self, folder: Path, expected: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """``expected`` are the ``files`` of a manifest; None: of a folder that is being built, whose files
        are opened when first read, and not verified.

        Raises IndexFormatError for a file that is missing or of another size, InputError for one that may not
        be read, and where the process may not have that many files open.
        """
        self.folder, self._expected = folder, expected
        self._descriptors: dict[str, int] = {}
        self._verified: set[str] = set()
        self._lock, self._closed = threading.RLock(), False
        weakref.finalize(self, _close, self._descriptors)
        for name, entry in (expected or {}).items():
            size = os.fstat(self._descriptor(name, f"{entry['bytes']} bytes")).st_size
            if size != entry["bytes"]:
                raise self.damaged(name, f"{entry['bytes']} bytes", f"{size} bytes")

    @staticmethod
    def of(folder: Path | OpenFiles) -> OpenFiles:
        """The files of a folder that is being built, or those given."""
        return folder if isinstance(folder, OpenFiles) else OpenFiles(folder)

    def close(self) -> None:
        """Close all files; a second call does nothing."""
        self._closed = True
        with self._lock:
            _close(self._descriptors)

    def has(self, name: str) -> bool:
        """Whether the segment has a file of that name."""
        return (self.folder / name).is_file() if self._expected is None else name in self._expected

    def damaged(self, name: str, expected: str, actual: object) -> IndexFormatError:
        """The error for a file that is not as it was written."""
        return IndexFormatError(
            f"{self.folder / name}: expected {expected}, found {actual}; the index is damaged: build it "
            "again (qbe doctor --index shows what is intact)"
        )

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Compare files (None: all) with their digests, as far as they have any; each once. Raises
        IndexFormatError.
        """
        for name in self._expected or () if names is None else names:
            digest = (self._expected or {}).get(name, {}).get("sha256")
            with self._lock:
                if digest is None or name in self._verified:
                    continue
                with self._using(name, verify=False) as descriptor:
                    is_right = has_digest(descriptor, digest)
                if not is_right:
                    raise self.damaged(name, f"the SHA-256 {digest[:12]}", "another")
                self._verified.add(name)

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from ``begin`` to ``end``, which must lie inside."""
        with self._using(name) as descriptor:
            size = os.fstat(descriptor).st_size
            end = size if end is None else end
            if not 0 <= begin <= end <= size:
                raise self.damaged(name, f"the bytes {begin} to {end}", f"{size} bytes")
            return os.pread(descriptor, end - begin, begin)

    def stream(self, name: str, begin: int = 0) -> BinaryIO:
        """A stream of a file from a place on."""
        return io.BufferedReader(_Stream(self, name, begin), 1 << 17)

    def array(self, name: str, dtype: str, axes: int, *, mapped: bool = True) -> NDArray[Any]:
        """The array of a ``.npy`` file, memory-mapped (then its ``base`` is the map) or read.

        Raises IndexFormatError for another ``dtype``, another number of ``axes``, and a shape that the file's
        size does not allow.
        """
        with self._using(name) as descriptor:
            size = os.fstat(descriptor).st_size
            content = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
        length = int.from_bytes(content[8:10], "little")
        match = _HEADER.fullmatch(content[: 10 + length])
        expected = f"an array of {dtype} with {axes} axes"
        if match is None:
            raise self.damaged(name, expected, "another header")
        kind = np.dtype(match[1].decode())
        shape = tuple(int(number) for number in match.groups()[1:] if number is not None)
        if kind != np.dtype(dtype) or len(shape) != axes:
            raise self.damaged(name, expected, f"one of {kind} with the shape {shape}")
        if 10 + length + int(np.prod(shape, dtype=object)) * kind.itemsize != size:
            raise self.damaged(name, f"{size} bytes of {kind}", f"the shape {shape}")
        array: NDArray[Any] = np.ndarray(shape, kind, content, 10 + length)
        return array if mapped else array.copy()

    @contextlib.contextmanager
    def linked(self, *names: str) -> Iterator[Path]:
        """A folder in which a library finds files, or folders of files, by their names while it opens them,
        all of them verified.

        It holds links that lead to the files opened here, also where their names are gone. Where there can be
        none (on macOS, without a folder for temporary files) it is the segment's own, as long as that has
        these files; otherwise IndexFormatError is raised.
        """
        files = [name for name in self._expected or () if name.split("/")[0] in names]
        self.verify(files)
        with contextlib.ExitStack() as stack:
            folder = _temporary(stack) if files and DESCRIPTORS.is_dir() else None
            if folder is not None:
                for name in files:
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).symlink_to(DESCRIPTORS / str(self._descriptor(name)))
            self._check_open()
            yield folder or self.folder
            self._check_open()
        for name in files if folder is None else ():
            path = self.folder / name
            if not path.exists() or not os.path.samestat(path.stat(), os.fstat(self._descriptor(name))):
                raise self.damaged(name, "the file that was opened", "another in its place")

    @contextlib.contextmanager
    def _using(self, name: str, *, verify: bool = True) -> Iterator[int]:
        """The descriptor of a verified file. Where it is closed, before or meanwhile, what was read by its
        number may be another file's, and UsageError is raised.
        """
        if verify and name not in self._verified:
            self.verify([name])
        self._check_open()
        try:
            yield self._descriptor(name)
        finally:
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"expected an open index of {self.folder}, found a closed one; open it again")

    def _descriptor(self, name: str, expected: str = "a file") -> int:
        with self._lock:
            if name not in self._descriptors:
                path = self.folder / name
                try:
                    self._descriptors[name] = _open(path)
                except (FileNotFoundError, NotADirectoryError) as error:
                    raise self.damaged(name, expected, "no file") from error
                except OSError as error:
                    raise input_error(path, error) from error
            return self._descriptors[name]


class _Stream(io.RawIOBase):
    """A file of a segment, read with a place of its own."""

    def __init__(self, files: OpenFiles, name: str, place: int) -> None:
        self._files, self._name, self._place = files, name, place

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._files._using(self._name) as descriptor:
            content = os.pread(descriptor, len(buffer), self._place)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


def _open(path: Path) -> int:
    """Open a file for reading; where too many are open, the process's limit is raised as far as it may be."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return os.open(path, flags)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot open {path}: expected fewer open files than the {most} of this process's limit; compact "
            "the index, or raise the limit (ulimit -n)"
        ) from error


def _close(descriptors: dict[str, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _temporary(stack: contextlib.ExitStack) -> Path | None:
    """A temporary folder that ends with a stack; None where there can be none."""
    try:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qbe-")))
    except OSError:
        return None


SMALL = 1 << 20
"""Bytes below which a file is read each time: that takes a millisecond."""

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
