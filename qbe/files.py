"""Files that appear whole or not at all: atomic writes, digests, directory exchange, locks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from qbe.errors import OutputError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def output_error(path: Path, error: OSError) -> OutputError:
    """An operating system's refusal to write, as one line for the user."""
    hints = {
        errno.ENOSPC: "free some space or choose another disk",
        errno.EROFS: "choose a folder that can be written",
        errno.EACCES: "choose a folder that you may write to",
        errno.EPERM: "choose a folder that you may write to",
        errno.ENOTDIR: "choose an output below a folder, not below a file",
        errno.EEXIST: "choose an output below a folder, not below a file",
        errno.EISDIR: "choose a file, not a folder",
    }
    hint = hints.get(error.errno or 0, "check the path")
    return OutputError(f"cannot write {path}: {error.strerror or error}; {hint}")


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream whose content replaces ``path`` when the block ends well.

    When the block raises, or the process dies, ``path`` keeps its former content and no partial
    file is left under its name. A symbolic link stays: the file it points to is replaced. What exists
    and is no regular file (``/dev/stdout``, a pipe) is written to directly. Raises OutputError when the
    file cannot be written; the block's troubles with other files pass through.
    """
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
        temporary.chmod(0o666 & ~umask)  # mkstemp makes files private; a result is shared as usual
        temporary.replace(target)
    except OSError as error:
        # A write that fails names no file, unlike another file that cannot be opened; and a reader of
        # standard output that went away is no failure to report.
        if in_block and (error.filename is not None or isinstance(error, BrokenPipeError)):
            raise
        raise output_error(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file (UTF-8) atomically."""
    with atomic_file(path) as stream:
        stream.write(text.encode())


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths in one step (Linux ``renameat2``); False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    status = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return bool(status == 0)


def publish_directory(staged: Path, target: Path) -> None:
    """Put a finished directory in its place; an old one there is replaced in one step and removed.

    Both must lie on one file system. Where the system has no exchange, the old directory is first
    renamed aside, so that between the two renames ``target`` is absent, yet nothing is lost.
    Raises OutputError where ``target`` is a file.
    """
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file; choose a folder")
    sync_tree(staged)
    if not target.exists():
        staged.rename(target)
    elif _exchange(staged, target):
        shutil.rmtree(staged)
    else:
        aside = target.with_name(f".{target.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
        staged.rename(target)
        shutil.rmtree(aside)
    sync(target.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Flush every file and folder below a directory to the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))


@contextlib.contextmanager
def resumable_staging(folder: Path, worth: Callable[[], bool]) -> Iterator[None]:
    """Around work that goes by way of a hidden folder, in which an interrupted call leaves what is finished.

    At the end the folder is removed, unless ``worth`` says that it holds something to go on with. Raises
    OutputError where the block could not write, with a word on what is kept.
    """
    try:
        yield
    except (OSError, OutputError) as error:
        reason = output_error(folder, error) if isinstance(error, OSError) else error
        kept = "; what is finished is kept: go on with --resume" if worth() else ""
        raise OutputError(f"{reason}{kept}") from error
    finally:
        if not worth():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on a file while the block runs; yields False if another process has it.

    The kernel drops the lock when its process dies, however it dies. The file is removed at the end.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a")
    except OSError as error:
        raise output_error(path, error) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = path.stat().st_ino == os.fstat(stream.fileno()).st_ino
        except (BlockingIOError, FileNotFoundError):
            alone = False  # held by another process, or just removed by one that ended
        try:
            yield alone
        finally:
            if alone:
                path.unlink(missing_ok=True)


def shared_lock(path: Path) -> int:
    """Take a shared lock on a file that is only read; closing the descriptor returned lets go of it.

    Where the file system has no locks nothing is held, and `try_exclusive_lock` is refused too. Raises
    OSError where the file is gone, or is being removed by one who holds it exclusively.
    """
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
    """Lock without waiting; BlockingIOError where another one's lock is in the way."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        if kind == fcntl.LOCK_EX:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None


@contextlib.contextmanager
def try_exclusive_lock(path: Path) -> Iterator[bool]:
    """Whether nobody holds a file (see `shared_lock`), nor can while the block runs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _flock(descriptor, fcntl.LOCK_EX)
            alone = True
        except BlockingIOError:
            alone = False
        yield alone
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Where exported models and downloads are kept: ``$QBE_CACHE``, else ``~/.cache/qbe``."""
    explicit = os.environ.get("QBE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "qbe" if base else Path.home() / ".cache" / "qbe"
