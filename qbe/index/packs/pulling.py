"""Pulling a pack: an index from an address, resumed where it was interrupted, and verified."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from qbe.errors import IndexBuildError, IndexFormatError, InputError, OutputError, PackError, file_error
from qbe.index.checking import check_own_files, write_lock
from qbe.index.manifest import MANIFEST
from qbe.index.openfiles import has_digest
from qbe.index.packs.layout import (
    DESCRIPTION,
    MalformedPackError,
    Pack,
    PackedFile,
    Progress,
    damaged,
    decode_description,
    files_of,
    malformed,
    pulled_as,
    read_header,
    unpack,
)
from qbe.index.packs.sources import Source
from qbe.index.snapshot import COMMIT, open_snapshot
from qbe.index.views import combined_manifest
from qbe.util.files import cache_folder, is_remote, link_or_copy, make_once, publish_directory, write_text

_BLOCK = 1 << 20
_SAY_EVERY_S = 10.0
_RESERVE = 64 << 20
"""Bytes of a disk that are left free."""

log = logging.getLogger(__name__)


class Pulled(NamedTuple):
    """What a pull did: the ``folder`` of the index, the description of its pack, how many bytes were
    ``read``, and how many bytes of its files were there before.
    """

    folder: Path
    pack: Pack
    read: int
    kept: int


def local_folder(folder: str | Path) -> Path:
    """The folder of an index: the one given, or, for an address, that in the cache, where the index is pulled
    to when it is first used. `pull` brings it up to date. Raises what `pull` does.

    >>> local_folder("indexes/sample")
    PosixPath('indexes/sample')
    """
    address = str(folder)
    if not is_remote(address):
        return Path(folder)
    target = cached_folder(address)
    make_once(
        target.with_name(f"{target.name}.first"),  # the pull itself locks the target
        target.is_dir,
        lambda: _first_pull(address, target),
        lambda: log.info("waiting for another process that pulls %s ...", address),
    )
    return target


def cached_folder(address: str) -> Path:
    """Where the index of an address is in the cache.

    >>> cached_folder("hf:someone/arxiv-cs").name
    'arxiv-cs-cc4d6202'
    """
    named = address if is_remote(address) else os.path.realpath(address)
    name = Path(named.rstrip("/")).name.partition(".")[0]
    return cache_folder() / "indexes" / f"{name}-{hashlib.sha256(named.encode()).hexdigest()[:8]}"


def pull(
    address: str,
    folder: str | Path | None = None,
    *,
    sha256: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Pulled:
    """Make a folder the index of a pack.

    ``address`` is a file, an address of http, https or (by fsspec) s3 and others, or ``hf:OWNER/NAME``: the
    file ``index.tar.zst`` of a data set at Hugging Face. ``folder`` is by default the one in the cache that
    `qbe.index.opening.open_index` uses for the address. ``sha256`` is that of the description, as a registry
    states it.

    Where the folder holds an index that was pulled, only files that it lacks are read: of an index that
    papers were appended to, those of the new segments. It is replaced in one step, and readers keep what they
    have opened. ``overwrite`` replaces one that was changed here, was not pulled, or is damaged.

    What was read is kept when the connection fails or the process ends, and the next call goes on. All bytes
    are compared with their digests. What is no pack, or has files that no index has, leaves nothing behind.

    Raises PackError for what cannot be read, is damaged or malformed, IndexBuildError for another index or
    other files in the folder, and where another process writes to it, OutputError where it cannot be written
    or the disk is too full.

    >>> from qbe.index.packs.packing import pack_index
    >>> _ = pack_index("indexes/sample", "sample.tar.zst")
    >>> pulled = pull("sample.tar.zst", "indexes/pulled")
    >>> pulled.pack.papers, pulled.kept
    (128, 0)
    """
    target = Path(os.path.realpath(cached_folder(address) if folder is None else folder))
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file; choose a folder")
    with contextlib.closing(Source(address)) as source:
        text, digest = read_header(source, address)
        pack = decode_description(text, address)
        if sha256 is not None and digest != sha256:
            raise PackError(
                f"{address}: expected the pack {sha256[:12]} that the registry names, found {digest[:12]}; "
                "the registry or the pack is another version: ask their author"
            )
        staging = target.with_name(f".{target.name}.pulling")
        with write_lock(target), _staging(staging, keeps=is_remote(address)):
            work = _Pull(source, pack, staging, progress or (lambda *_: None))
            return work.into(target, text, overwrite=overwrite)


@contextlib.contextmanager
def _staging(folder: Path, *, keeps: bool) -> Iterator[None]:
    """The hidden folder of a pull; if ``keeps``, it stays with what was read when the block fails."""
    kept = keeps
    try:
        yield
        kept = False
    except OSError as error:
        raise file_error(error, folder) from error
    except MalformedPackError:
        kept = False
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on" if kept else "") from None
    finally:
        read = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_nlink == 1)
        if not (kept and any(read)):  # other files are those of the index that is there
            shutil.rmtree(folder, ignore_errors=True)


class _Pull:
    """One pull of a pack, whose description was read, by way of a hidden folder, ``staging``: the files that
    are there, below ``index``, and the frame that is being read.
    """

    def __init__(self, source: Source, pack: Pack, staging: Path, progress: Progress) -> None:
        self._source, self._pack, self._staging, self._progress = source, pack, staging, progress
        self._index = staging / "index"
        self._read = 0

    def into(self, target: Path, text: bytes, *, overwrite: bool) -> Pulled:
        """Make ``target`` the index of the pack with the description ``text``."""
        if _check_target(target, self._pack, overwrite=overwrite):
            write_text(target / DESCRIPTION, text.decode())
            return Pulled(target, self._pack, 0, self._pack.bytes)
        self._index.mkdir(parents=True, exist_ok=True)
        wanted = self._wanted(target)
        self._check_space(target, wanted)
        begin, total, done = self._source.place, sum(file.frame_bytes for file in wanted), 0
        for file in self._pack.files:
            if file in wanted:
                self._fetch(file, begin, done, total)
                done += file.frame_bytes
            begin += file.frame_bytes
        self._check(target)
        (self._index / DESCRIPTION).write_bytes(text)
        publish_directory(self._index, target)
        return Pulled(target, self._pack, self._read, self._pack.bytes - sum(file.bytes for file in wanted))

    def _wanted(self, target: Path) -> list[PackedFile]:
        """The files that are neither in the hidden folder nor in the index that is there, from which they are
        linked; what is no file of the pack is removed.
        """
        wanted = []
        for file in self._pack.files:
            path = self._index / file.name
            if _is_that(path, file):
                continue
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            if _is_that(target / file.name, file):
                link_or_copy(target / file.name, path)
            else:
                wanted.append(file)
        names = {file.name for file in self._pack.files}
        frames = {_frame(file) for file in wanted}
        for path in [*self._staging.rglob("*")]:
            inside = path.relative_to(self._index).as_posix() if path.is_relative_to(self._index) else None
            if not path.is_dir() and inside not in names and path.name not in frames:
                path.unlink()
        return wanted

    def _check_space(self, target: Path, wanted: list[PackedFile]) -> None:
        """Raise OutputError where the disk is too full."""
        needed = sum(file.bytes for file in wanted) + max((file.frame_bytes for file in wanted), default=0)
        free = shutil.disk_usage(self._staging).free
        if needed + _RESERVE > free:
            raise OutputError(
                f"cannot write {target}: expected {(needed + _RESERVE) / 1e6:,.0f} MB of disk, found "
                f"{free / 1e6:,.0f}; free some space or choose another disk"
            )

    def _fetch(self, file: PackedFile, begin: int, done: int, total: int) -> None:
        """Read the frame of a file, which begins at a place of the pack, and write the file; ``done`` of the
        ``total`` bytes to read were of other files.
        """
        path, digest = self._staging / _frame(file), hashlib.sha256()
        with path.open("ab+") as frame:
            frame.seek(0)
            while block := frame.read(_BLOCK):  # of an interrupted pull
                digest.update(block)
            have = frame.tell()
            self._source.move(begin + have)
            while have < file.frame_bytes and (
                block := self._source.read(min(_BLOCK, file.frame_bytes - have))
            ):
                digest.update(block)
                have += frame.write(block)
                self._read += len(block)
                self._progress(done + have, total)
            if digest.hexdigest() != file.frame_sha256:
                path.unlink()
                raise damaged(self._source.address, file.name)
            frame.seek(0)
            content = self._staging / "content"
            with content.open("wb") as stream:
                unpack(frame, file, stream, self._source.address)
        content.replace(self._index / file.name)
        path.unlink()

    def _check(self, target: Path) -> None:
        """Raise MalformedPackError unless the files are those of an index, and it is the one described."""
        pack, address = self._pack, self._source.address
        digests = {file.name: file.sha256 for file in pack.files}
        try:
            with contextlib.closing(open_snapshot(self._index)) as snapshot:
                manifest = combined_manifest(snapshot)
                same = {member.name for member in files_of(snapshot)} == digests.keys()
                generation = snapshot.generation
        except (IndexFormatError, InputError) as error:
            reason = str(error).replace(str(self._index), str(target))
            raise MalformedPackError(f"{address}: expected the files of an index, found: {reason}") from error
        same &= all(
            entry.get("sha256") in (None, digests.get(name)) for name, entry in manifest.files.items()
        )
        corpus = manifest.corpus
        stated = pack.digest, pack.generation, pack.papers, pack.sentences
        if not same or stated != (manifest.digest, generation, corpus["papers"], corpus["sentences"]):
            raise malformed(address, "the index")


def _check_target(target: Path, pack: Pack, *, overwrite: bool) -> bool:
    """Whether a folder is the index of a pack already, by its manifest, and is not to be overwritten.

    Raises IndexBuildError for a folder of other files than an index's, and, unless with ``overwrite``, for an
    index that is not as it was pulled.
    """
    if not target.is_dir() or not any(target.iterdir()):
        return False
    try:
        with contextlib.closing(open_snapshot(target)) as snapshot:
            digest = combined_manifest(snapshot).digest
    except IndexFormatError as error:
        if not ((target / MANIFEST).exists() or (target / COMMIT).exists()):
            raise IndexBuildError(
                f"expected no such path, or an index, at {target}, found other files; choose another `folder`"
            ) from error
        digest = ""
    if digest == pack.digest and not overwrite:  # with it, the bytes are compared
        return True
    before = pulled_as(target)
    if not overwrite and (before is None or before.digest != digest):
        found = "one that was changed since" if before and digest else "one that was not pulled"
        found = found if digest else "a damaged one"
        raise IndexBuildError(
            f"expected an index as it was pulled at {target}, found {found}; choose another `folder`, or "
            "replace it with `overwrite`"
        )
    check_own_files(target)
    return False


def _frame(file: PackedFile) -> str:
    """The name of the frame of a file while it is read."""
    return f"{file.frame_sha256}.frame"


def _is_that(path: Path, file: PackedFile) -> bool:
    """Whether a path is a file of that content."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.bytes:
        return False
    with path.open("rb") as stream:
        return has_digest(stream.fileno(), file.sha256)


def _first_pull(address: str, target: Path) -> None:
    """Pull an index into the cache, and say so."""
    said = -_SAY_EVERY_S

    def say(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _SAY_EVERY_S:
            said = time.monotonic()
            log.info("%s: %.0f of %.0f MB", address, done / 1e6, total / 1e6)

    log.info("pulling %s, once, into %s ...", address, target)
    pull(address, target, progress=say)
