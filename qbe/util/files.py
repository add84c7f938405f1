"""Atomic writes of files and directories, SHA-256 digests, locks between processes, the cache folder.

Paths are given as `pathlib.Path` or as strings; another type raises TypeError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from qbe.errors import InputError, OutputError, QbeError, file_error, output_error

StrPath = str | os.PathLike[str]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_LOCK_POLL_SECONDS = 0.1
"""Between two looks whether a file is still locked."""

_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

_POLL_SECONDS = 0.5
"""Between two looks whether another process has made what this one waits for."""

_CHANGE_SECONDS = 60.0
"""How long others may take to change a file."""
HUB = "hf:"
"""What addresses of repositories of Hugging Face begin with."""


def is_address(source: StrPath) -> bool:
    """Return True for an address with a protocol, not a path.

    >>> is_address("s3://papers/a.jsonl"), is_address("a:b.jsonl")
    (True, False)
    """
    return _PROTOCOL.match(str(source)) is not None


def is_remote(index: StrPath) -> bool:
    """Return True for the address of a shared index (https://..., hf:...), not a path."""
    return str(index).startswith(HUB) or is_address(index)


def sha256(path: StrPath) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def atomic_file(path: StrPath) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces a file when the block ends without an exception.

    No partial file is left under the name. Absent folders are created, a symbolic link stays, and something
    that is no regular file (``/dev/stdout``, a pipe) is written to directly. Raises OutputError; an OSError
    of the block that names another file is passed on.
    """
    path = Path(path)
    temporary: Path | None = None
    in_block = False
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                in_block = True
                yield stream
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            in_block = True
            yield stream
            in_block = False
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates private files; outputs get the usual permissions
        temporary.replace(target)
    except OSError as error:
        # A failed write names no file, unlike another file that cannot be opened. A closed pipe behind
        # standard output is handled by the command line.
        if in_block and (error.filename is not None or isinstance(error, BrokenPipeError)):
            raise
        raise output_error(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def check_output(path: StrPath, overwrite: bool, parameter: str = "output") -> None:
    """Raise OutputError for a folder, and without ``overwrite`` for a file that exists and has content.

    What is neither (a pipe, ``/dev/stdout``) passes. The message names the ``parameter`` of the file.
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path}: expected a file to write, found a folder; choose another `{parameter}`")
    if not overwrite and path.is_file() and path.stat().st_size:
        raise OutputError(
            f"{path}: expected no such file, found one; choose another `{parameter}`, or give `overwrite` to "
            "replace it"
        )


def write_text(path: StrPath, text: str) -> None:
    """Write a text file (UTF-8) as `atomic_file` does."""
    with atomic_file(path) as stream:
        stream.write(text.encode())


def link_or_copy(path: Path, link: Path) -> None:
    """Link a file that is never changed, or copy it where links are impossible."""
    try:
        os.link(path, link)
    except OSError:
        shutil.copyfile(path, link)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths in one step (Linux ``renameat2``); return False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    status = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return bool(status == 0)


def publish_directory(staged: StrPath, target: StrPath) -> None:
    """Move a finished directory to its place; replace one that is there in one step.

    Both must be on one file system. Where the system cannot exchange directories, ``target`` is absent for a
    moment. Raises OutputError.
    """
    staged, target = Path(staged), Path(target)
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file; choose a folder")
    try:
        sync_tree(staged)
        if not target.exists():
            staged.rename(target)
        elif _exchange(staged, target):
            shutil.rmtree(staged)
        else:
            old = target.with_name(f".{target.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
            staged.rename(target)
            shutil.rmtree(old)
        sync(target.parent)
    except OSError as error:
        raise output_error(target, error) from error


def sync(path: StrPath) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: StrPath) -> None:
    """Flush every file and folder below a directory to the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            sync(Path(folder, name))
        sync(folder)


@contextlib.contextmanager
def resumable_staging(folder: StrPath, resumable: Callable[[], bool]) -> Iterator[None]:
    """Run a block that works in a hidden folder, and keep the folder if ``resumable()`` says so afterwards.

    Raises OutputError where the block could not write, InputError where it could not read; the message says
    whether finished work is kept.
    """
    try:
        yield
    except (OSError, InputError, OutputError) as error:
        reason = file_error(error, folder) if isinstance(error, OSError) else error
        kept = "; what is finished is kept: continue it with `resume`" if resumable() else ""
        raise type(reason)(f"{reason}{kept}") from error
    finally:
        if not resumable():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def lock(path: StrPath) -> Iterator[bool]:
    """Try to hold an exclusive lock on a file while the block runs; yield whether it was acquired.

    The operating system releases it when the process ends. The file is removed at the end. Raises OutputError
    where the file cannot be created or is a symbolic link.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A link, which another user may have put there, is not followed to a file of this user's.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        stream = os.fdopen(os.open(path, flags, 0o666), "w")
    except OSError as error:
        raise output_error(path, error) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            acquired = os.path.samestat(path.lstat(), os.fstat(stream.fileno()))
        except (BlockingIOError, FileNotFoundError):
            acquired = False  # held by another process, or just removed by one that ended
        try:
            yield acquired
        finally:
            if acquired:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def change_lock(path: StrPath) -> Iterator[None]:
    """Wait up to a minute for the lock beside a file that the block changes."""
    path = Path(path)
    deadline = time.monotonic() + _CHANGE_SECONDS
    while True:
        with lock(path.with_name(f".{path.name}.lock")) as is_mine:
            if is_mine:
                yield
                return
        if time.monotonic() > deadline:
            raise OutputError(
                f"expected to change {path}, found another process at it for a minute; try again"
            )
        time.sleep(_LOCK_POLL_SECONDS)


def make_once(
    target: StrPath, is_made: Callable[[], bool], make: Callable[[], None], on_wait: Callable[[], None]
) -> None:
    """Call ``make`` unless ``is_made``; wait while another process makes the same (``on_wait`` is called
    once).
    """
    target = Path(target)
    waits = False
    while not is_made():
        with lock(target.with_name(f".{target.name}.lock")) as is_mine:
            if is_mine:
                if not is_made():
                    make()
                return
        if not waits:
            on_wait()
        waits = True
        time.sleep(_POLL_SECONDS)


def shared_lock(path: StrPath) -> int:
    """Take a shared lock on a file and return its descriptor; closing it releases the lock.

    Raises OSError where the file is gone, or is being removed by a process that holds it exclusively. On a
    file system without locks nothing is locked, and `try_exclusive_lock` never succeeds.
    """
    path = Path(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _flock(descriptor, fcntl.LOCK_SH)
        if path.stat().st_ino != os.fstat(descriptor).st_ino:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _flock(descriptor: int, kind: int) -> None:
    """Lock without waiting; raise BlockingIOError where another process holds a lock."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        if kind == fcntl.LOCK_EX:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None


@contextlib.contextmanager
def try_exclusive_lock(path: StrPath) -> Iterator[bool]:
    """Try to lock an existing file exclusively while the block runs; yield whether that succeeded."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _flock(descriptor, fcntl.LOCK_EX)
            acquired = True
        except BlockingIOError:
            acquired = False
        yield acquired
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return ``$QBE_CACHE``, else ``$XDG_CACHE_HOME/qbe``, else ``~/.cache/qbe``."""
    explicit = os.environ.get("QBE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "qbe" if base else Path.home() / ".cache" / "qbe"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A folder that may hold unfinished work, and the words of its error messages.

    ``state_file`` is the name of its state, ``name`` that of the work ("build"), ``inputs`` that of its
    inputs ("the corpus and settings"), ``remedy`` how to discard it, ``error`` the class that is raised.
    """

    folder: Path
    state_file: str
    name: str
    inputs: str
    remedy: str
    error: type[QbeError]

    def read_state(self) -> dict[str, Any] | None:
        """Return the state, or None where the work was interrupted before there was one."""
        try:
            state: dict[str, Any] = json.loads((self.folder / self.state_file).read_text())
        except (OSError, ValueError):
            return None
        return state

    def check_inputs(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Raise the error, which names the keys that differ, unless the inputs are equal."""
        if before != now:
            changed = ", ".join(key for key in now if before.get(key) != now[key])
            raise self.error(
                f"expected {self.inputs} of the unfinished {self.name} in {self.folder}, found other "
                f"{changed}; repeat the command as it was, or {self.remedy}"
            )

    def in_the_way(self) -> QbeError:
        """Return the error for work that would have to be resumed or discarded first."""
        return self.error(
            f"{self.folder} holds an unfinished {self.name}; continue it with `resume`, or {self.remedy}"
        )

    def remove_partial_files(self) -> None:
        """Remove files that were being written when the work was interrupted."""
        for path in self.folder.glob(".*.partial"):
            path.unlink()
