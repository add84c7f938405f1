"""Atomic writes of files and folders, unfinished work, locks between processes, digests, the cache folder."""

import contextlib
import fcntl
import glob
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from qbe.errors import InputError, OutputError, file_error, output_error

StrPath = str | os.PathLike[str]

HUB = "hf:"  # what addresses of repositories of Hugging Face begin with
_POLL_SECONDS = 0.1
_CHANGE_SECONDS = 60.0  # how long others may take to change a file


def is_address(source: StrPath) -> bool:
    """Return True for an address with a protocol (s3://...), not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(source)) is not None


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

    Absent folders are created, a symbolic link stays, and something that is no regular file (``/dev/stdout``,
    a pipe) is written to directly. Raises OutputError; an OSError of the block on another file is passed on.
    """
    path, in_block = Path(path), False
    is_special = path.exists() and not path.is_file()
    target = path if is_special else Path(os.path.realpath(path))
    written = path if is_special else target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        if not is_special:
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(target)
        with written.open("wb" if is_special else "xb") as stream:
            if not is_special:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(stream, fcntl.LOCK_EX)
            in_block = True
            yield stream
            in_block = False
            if not is_special:
                stream.flush()
                os.fsync(stream.fileno())
                written.replace(target)
    except OSError as error:
        # A failed write names no file, unlike another file that cannot be opened. A closed pipe behind
        # standard output is handled by the command line.
        if in_block and (error.filename is not None or isinstance(error, BrokenPipeError)):
            raise
        raise output_error(path, error) from error
    finally:
        if not is_special:
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what killed processes left of writing a file; those that still write hold a lock."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}.partial"):
        with contextlib.suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def check_output(path: StrPath, overwrite: bool, parameter: str = "output") -> None:
    """Raise OutputError for a folder, and without ``overwrite`` for a file that has content."""
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


def publish_directory(staged: StrPath, target: StrPath) -> None:
    """Move a finished directory to its place on the same file system, instead of one that is there."""
    staged, target = Path(staged), Path(target)
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file; choose a folder")
    former = target.with_name(f".{target.name}.old")
    try:
        sync_tree(staged)
        shutil.rmtree(former, ignore_errors=True)
        if target.exists():
            target.rename(former)
        staged.rename(target)
        sync(target.parent)
    except OSError as error:
        raise output_error(target, error) from error
    shutil.rmtree(former, ignore_errors=True)


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
        for name in (*names, ""):
            sync(Path(folder, name))


@contextlib.contextmanager
def resumable_staging(staging: StrPath, resumable: Callable[[], bool]) -> Iterator[None]:
    """Work in a hidden file or folder, kept if ``resumable()`` afterwards; errors say that it was kept."""
    try:
        yield
    except (OSError, InputError, OutputError) as error:
        reason = file_error(error, staging) if isinstance(error, OSError) else error
        kept = "; what is finished is kept: continue it with `resume`" if resumable() else ""
        raise type(reason)(f"{reason}{kept}") from error
    finally:
        if not resumable():
            if Path(staging).is_dir():
                shutil.rmtree(staging, ignore_errors=True)
            else:
                Path(staging).unlink(missing_ok=True)


# By hand, since to import the package filelock takes a twelfth of a cold search.
@contextlib.contextmanager
def lock(path: StrPath, seconds: float = 0.0) -> Iterator[bool]:
    """Try for some seconds to hold an exclusive lock on a file in the block; yield whether it was acquired.

    The operating system releases the lock when the process ends; the file is removed at the end. Raises
    OutputError where a hidden file of the same name, as of unfinished work, is a link that somebody made.
    """
    path, deadline, is_mine = Path(path), time.monotonic() + seconds, False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "w")
        except OSError as error:
            raise output_error(path, error) from error
        with stream:
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_mine = os.path.samestat(path.lstat(), os.fstat(stream.fileno()))  # else it was removed
            if is_mine or time.monotonic() >= deadline:
                try:
                    if is_mine:
                        _refuse_links(path)
                    yield is_mine
                finally:
                    if is_mine:
                        path.unlink(missing_ok=True)
                return
        time.sleep(_POLL_SECONDS)


def _refuse_links(path: Path) -> None:
    """Raise OutputError where a hidden file that a lock protects is a link, with others' files behind it."""
    with os.scandir(path.parent) as others:
        for other in others:
            if other.name.startswith(path.name.removesuffix("lock")) and other.is_symlink():
                raise OutputError(f"{other.path}: expected a file or folder of qbe, found a link; remove it")


@contextlib.contextmanager
def change_lock(path: StrPath) -> Iterator[None]:
    """Wait up to a minute for the lock beside a file that the block changes."""
    path = Path(path)
    with lock(path.with_name(f".{path.name}.lock"), _CHANGE_SECONDS) as is_mine:
        if not is_mine:
            raise OutputError(
                f"expected to change {path}, found another process at it for a minute; try again"
            )
        yield


def make_once(
    target: StrPath, is_made: Callable[[], bool], make: Callable[[], None], on_wait: Callable[[], object]
) -> bool:
    """Call ``make`` unless ``is_made``, and return whether; ``on_wait`` tells that another process does."""
    target, seconds = Path(target), 0.0
    while not is_made():
        with lock(target.with_name(f".{target.name}.lock"), seconds) as is_mine:
            if is_mine:
                if is_missing := not is_made():
                    make()
                return is_missing
        on_wait()
        seconds = 86_400.0
    return False


def cache_folder() -> Path:
    """Return ``$QBE_CACHE``, else ``$XDG_CACHE_HOME/qbe``, else ``~/.cache/qbe``."""
    if explicit := os.environ.get("QBE_CACHE"):
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "qbe")
