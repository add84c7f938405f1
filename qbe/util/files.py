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
    """Whether a source is an address with a protocol, and not a path.

    >>> is_address("s3://papers/a.jsonl"), is_address("a:b.jsonl")
    (True, False)
    """
    return _PROTOCOL.match(str(source)) is not None


def is_remote(index: StrPath) -> bool:
    """Whether a text is the address of a pack of an index (`qbe.index.share`), and not a path.

    >>> is_remote("hf:someone/arxiv-cs"), is_remote("https://example.org/a.tar.zst"), is_remote("a.tar.zst")
    (True, True, False)
    """
    return str(index).startswith(HUB) or is_address(index)


def sha256(path: StrPath) -> str:
    """Return the hexadecimal SHA-256 of a file, which is read in blocks.

    Raises OSError where the file cannot be read.

    >>> _ = Path("a.txt").write_text("text")
    >>> sha256("a.txt")[:12]
    '982d9e3eb996'
    """
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def atomic_file(path: StrPath) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces a file when the block ends without an exception.

    When the block raises, or the process dies, the file keeps its former content and no partial file is
    left under its name. Absent folders are created. A symbolic link stays: the file it points to is
    replaced. Something that exists and is no regular file (``/dev/stdout``, a pipe) is written to
    directly. Raises OutputError when the file cannot be written; an OSError of the block that names
    another file is passed on.

    >>> with atomic_file("new/a.txt") as stream:
    ...     _ = stream.write(b"text")
    >>> Path("new/a.txt").read_text()
    'text'
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


def write_text(path: StrPath, text: str) -> None:
    """Write a text file (UTF-8) as `atomic_file` does. Raises OutputError when it cannot be written."""
    with atomic_file(path) as stream:
        stream.write(text.encode())


def link_or_copy(path: Path, link: Path) -> None:
    """Give a file that is never changed a second name, or copy it, as to another file system.

    Raises OSError where neither can be done.
    """
    try:
        os.link(path, link)
    except OSError:
        shutil.copyfile(path, link)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths in one step (Linux ``renameat2``); False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    status = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return bool(status == 0)


def publish_directory(staged: StrPath, target: StrPath) -> None:
    """Move a finished directory to its place; a directory already there is replaced in one step and removed.

    Both must lie on one file system. Where the system has no exchange of directories, the old directory is
    renamed first: between the two renames ``target`` is absent, but nothing is lost. Raises OutputError
    where ``target`` is a file or cannot be written.
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
    """Flush a file, or the names in a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: StrPath) -> None:
    """Flush every file and folder below a directory to the disk. Raises OSError."""
    for folder, _, names in os.walk(directory):
        for name in names:
            sync(Path(folder, name))
        sync(folder)


@contextlib.contextmanager
def resumable_staging(folder: StrPath, resumable: Callable[[], bool]) -> Iterator[None]:
    """Run a block that works in a hidden folder, and keep the folder where the work can be resumed.

    Args:
        folder: the hidden folder; the block creates it.
        resumable: called when the block has ended, well or not: whether the folder holds finished work
            that another call can resume. Where it does not, the folder is removed.

    Raises OutputError where the block could not write, and InputError where it could not read another
    file; the message says whether finished work is kept.
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
    """Hold an exclusive lock on a file while the block runs.

    Yields whether the lock was acquired: False where another process has it. The operating system releases
    the lock when its process ends, however it ends. The file is removed at the end. Raises OutputError
    where the file cannot be created, or is a symbolic link.
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
    """Let no other process or thread that asks for the same lock change a file while the block runs.

    Raises OutputError where another one does for a minute, and what `lock` does.

    >>> with change_lock("a.txt"):
    ...     sorted(file.name for file in Path().glob(".a*"))
    ['.a.txt.lock']
    """
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
    """Call ``make`` unless ``is_made``; while another process makes the same, wait for that.

    Processes agree by a lock on a file beside ``target``, which ``make`` makes. ``on_wait`` is called once
    where this process has to wait. What ``make`` raises is passed on.

    >>> make_once("made", Path("made").exists, Path("made").mkdir, lambda: None)
    >>> make_once("made", Path("made").exists, Path("made").mkdir, lambda: None)
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
    """Take a shared lock on a file and return its descriptor; closing the descriptor releases the lock.

    On a file system without locks nothing is locked, and `try_exclusive_lock` never succeeds. Raises
    OSError where the file is gone, or is being removed by a process that holds it exclusively.
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
    """Lock without waiting; raises BlockingIOError where another process's lock prevents it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        if kind == fcntl.LOCK_EX:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None


@contextlib.contextmanager
def try_exclusive_lock(path: StrPath) -> Iterator[bool]:
    """Hold an exclusive lock on an existing file while the block runs, if no process holds it.

    Yields whether the lock was acquired (see `shared_lock`). Raises OSError where the file is gone.
    """
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
    """Return the folder of what is kept between commands: ``$QBE_CACHE``, else ``~/.cache/qbe``.

    ``$XDG_CACHE_HOME`` takes the place of ``~/.cache`` where it is set.
    """
    explicit = os.environ.get("QBE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "qbe" if base else Path.home() / ".cache" / "qbe"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A folder that may hold unfinished work, with what its error messages need.

    ``state_file`` is the name of its state file, ``name`` what the work is called ("build"), ``inputs`` what
    its inputs are called ("the corpus and settings"), ``remedy`` how to be rid of it, ``error`` the class of
    what is raised.

    >>> work = Unfinished(Path("u"), "state.json", "build", "the corpus and settings", "remove it", QbeError)
    >>> work.read_state() is None
    True
    >>> work.check_inputs({"corpus": "a.jsonl"}, {"corpus": "b.jsonl"})
    Traceback (most recent call last):
        ...
    qbe.errors.QbeError: expected the corpus and settings of the unfinished build in u, found other ...
    """

    folder: Path
    state_file: str
    name: str
    inputs: str
    remedy: str
    error: type[QbeError]

    def read_state(self) -> dict[str, Any] | None:
        """The state, or None where the work was interrupted before there was one."""
        try:
            state: dict[str, Any] = json.loads((self.folder / self.state_file).read_text())
        except (OSError, ValueError):
            return None
        return state

    def check_inputs(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Raise the error unless the inputs of the unfinished work are those of now; it names the keys that
        differ.
        """
        if before != now:
            changed = ", ".join(key for key in now if before.get(key) != now[key])
            raise self.error(
                f"expected {self.inputs} of the unfinished {self.name} in {self.folder}, found other "
                f"{changed}; repeat the command as it was, or {self.remedy}"
            )

    def in_the_way(self) -> QbeError:
        """The error for work that would have to be resumed or discarded first."""
        return self.error(
            f"{self.folder} holds an unfinished {self.name}; continue it with `resume`, or {self.remedy}"
        )

    def remove_partial_files(self) -> None:
        """Remove files that were being written when the work was interrupted."""
        for path in self.folder.glob(".*.partial"):
            path.unlink()
