"""Sharing an index as one file, a tar archive compressed with zstd, and pulling it from a file, URL or hub.

The archive holds ``pack.json`` (its description), ``manifest.json``, and the files that the manifest names,
which are verified by its digests while they are unpacked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from qbe.corpus.records import dump_record
from qbe.corpus.streams import open_address
from qbe.errors import IndexBuildError, IndexFormatError, OutputError, PackError, UsageError, file_error
from qbe.index.papers import OFFSETS, RECORDS
from qbe.index.store import (
    MANIFEST,
    Generation,
    clean,
    describe_files,
    digest,
    open_generation,
    publish,
    read_manifest,
    seal,
    write_lock,
)
from qbe.types import TEXT_NOT_INCLUDED
from qbe.util import web
from qbe.util.files import HUB, atomic_file, cache_folder, is_remote, make_once, write_text
from qbe.util.work import thread_count

DESCRIPTION = "pack.json"
HUB_FILE = "index.tar.zst"
"""The file of a Hugging Face data set that is pulled where none is named."""

_HUB = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>[\w./-]+))?", re.ASCII
)
_FILE = re.compile(r"[a-z_]+(\.[a-z]+)+|lucene/\w+(\.\w+)*", re.ASCII)
"""Names that files of an index have; no other is written."""
_BLOCK = 1 << 20
_LONGEST = 16 << 20
"""Maximum size of ``pack.json`` and ``manifest.json``."""
_WINDOW = 128 << 20
"""Memory that zstd may use to look back."""
_RESERVE = 64 << 20
"""Bytes of a disk that are left free."""
_SAY_EVERY_S = 10.0

Progress = Callable[[int, int], object]
"""Called with bytes done and bytes in all."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pack:
    """The description of a packed index; ``license`` and ``source`` are those of the papers, if stated.

    ``encoder`` is None without vectors; ``abstracts`` says whether their texts are included.
    """

    digest: str
    papers: int
    sentences: int
    encoder: str | None
    abstracts: bool
    license: str | None
    source: str | None
    bytes: int


class _NoPackError(PackError):
    """A pack that is damaged or malformed; nothing of it is kept."""


class Packed(NamedTuple):
    """A pack that was written, and its size in bytes."""

    pack: Pack
    bytes: int


class Pulled(NamedTuple):
    """The folder of a pulled index, its description, and whether it was there already."""

    folder: Path
    pack: Pack
    was_there: bool


def pack_index(
    folder: str | Path,
    output: str | Path,
    *,
    license: str | None = None,
    source: str | None = None,
    abstracts: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Write the newest generation of an index to a file, from which `pull` makes the same index.

    ``license`` and ``source`` are by default those that the index was pulled with. Without ``abstracts``
    their texts are left out, and the digest is another. The same index gives the same bytes.

    Raises IndexFormatError for a folder that is no sound index, UsageError for one with positions that is to
    be packed without abstracts, OutputError for a file that exists and is no pack, or cannot be written.

    >>> packed = pack_index("indexes/sample", "sample.tar.zst", license="CC0-1.0")
    >>> packed.pack.papers, packed.pack.digest == index.manifest.digest
    (128, True)
    """
    import zstandard

    folder, output = Path(folder), Path(output)
    if output.is_file() and output.stat().st_size and _pack_of_file(output) is None:
        raise OutputError(
            f"{output}: expected no such file, or a pack to replace, found another file; choose another "
            "`output`, or remove it"
        )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            generation = stack.enter_context(contextlib.closing(open_generation(folder)))
            replaced = None
            if not abstracts:
                replaced = Path(
                    stack.enter_context(tempfile.TemporaryDirectory(prefix=".", dir=output.parent))
                )
                _leave_out_abstracts(generation, replaced)
            manifest = read_manifest(replaced or generation.folder)
            before, size = pulled_as(folder), sum(entry["bytes"] for entry in manifest.files.values())
            pack = Pack(
                digest=manifest.digest,
                papers=manifest.corpus["papers"],
                sentences=manifest.corpus["sentences"],
                encoder=manifest.dense["encoder"]["name"] if manifest.dense else None,
                abstracts=abstracts and (before is None or before.abstracts),
                license=license or (before.license if before else None),
                source=source or (before.source if before else None),
                bytes=size,
            )
            compressor = zstandard.ZstdCompressor(3, threads=thread_count(threads))
            stream = stack.enter_context(atomic_file(output))
            with compressor.stream_writer(stream, closefd=False) as archive:
                _add(archive, DESCRIPTION, _encoded(pack))
                _add(archive, MANIFEST, ((replaced or generation.folder) / MANIFEST).read_bytes())
                done = 0
                for name, entry in manifest.files.items():
                    replacement = replaced and replaced / name
                    path = replacement if replacement and replacement.exists() else generation.path(name)
                    with path.open("rb") as file:
                        done = _copy(file, archive, name, entry, done, size, progress, generation)
                generation.check()
                archive.write(bytes(2 * tarfile.BLOCKSIZE))
            return Packed(pack, stream.tell())
    except OSError as error:
        raise file_error(error, output) from error


def _encoded(pack: Pack) -> bytes:
    record = {"format": 2, "qbe_version": version("qbe"), **dataclasses.asdict(pack)}
    return (json.dumps(record, indent=1) + "\n").encode()


def _add(archive: IO[bytes], name: str, content: bytes) -> None:
    archive.write(_header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE))


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def _copy(
    file: IO[bytes],
    archive: IO[bytes],
    name: str,
    entry: Any,
    done: int,
    total: int,
    progress: Progress | None,
    generation: Generation,
) -> int:
    """Add a file to an archive while comparing it with its digest; return the bytes done."""
    archive.write(_header(name, entry["bytes"]))
    sha256 = hashlib.sha256()
    while block := file.read(_BLOCK):
        sha256.update(block)
        archive.write(block)
        done += len(block)
        if progress is not None:
            progress(done, total)
    if entry.get("sha256") not in (None, sha256.hexdigest()) or file.tell() != entry["bytes"]:
        raise generation.damaged(name, f"the SHA-256 {entry['sha256'][:12]}", "another")
    archive.write(bytes(-entry["bytes"] % tarfile.BLOCKSIZE))
    return done


def _leave_out_abstracts(generation: Generation, folder: Path) -> None:
    """Write papers with `TEXT_NOT_INCLUDED` for each sentence, and the manifest of an index of them.

    Titles and metadata stay. Raises UsageError where postings or term vectors have positions, from which
    texts could be put together again.
    """
    manifest = generation.manifest
    lucene = manifest.lucene or {}
    if stored := next((name for name in ("positions", "docvectors") if lucene.get(name)), None):
        raise UsageError(
            "expected an index without positions of words, from which texts can be put together again, "
            f"found one with; build it without `{stored}`"
        )
    generation.verify([RECORDS])
    offsets = [0]
    with generation.stream(RECORDS) as lines, (folder / RECORDS).open("wb") as records:
        for line in lines:
            record = json.loads(line)
            record["abstract"] = [TEXT_NOT_INCLUDED] * len(record["abstract"])
            offsets.append(offsets[-1] + records.write(dump_record(record)))
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    files = {**manifest.files, **describe_files(folder)}
    corpus = {**manifest.corpus, "sha256": files[RECORDS]["sha256"]}
    summed = digest(files, manifest.lucene)
    changed = dataclasses.replace(manifest, corpus=corpus, files=files, digest=summed)
    write_text(folder / MANIFEST, seal(dataclasses.asdict(changed)))


def pulled_as(folder: Path) -> Pack | None:
    """Return the description of the pack that an index was pulled from, if it was.

    >>> pulled_as(Path("indexes/sample")) is None
    True
    """
    try:
        return _decoded((folder / DESCRIPTION).read_bytes(), DESCRIPTION)
    except (OSError, PackError):
        return None


def local_folder(address: str | Path) -> Path:
    """Return the folder of an index; the index of an address is pulled into the cache the first time.

    `pull` brings it up to date. Raises what `pull` does.

    >>> local_folder("indexes/sample")
    PosixPath('indexes/sample')
    """
    if not is_remote(address):
        return Path(address)
    address = str(address)
    target = cached_folder(address)
    said = -_SAY_EVERY_S

    def say(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _SAY_EVERY_S:
            said = time.monotonic()
            log.info("%s: %.0f of %.0f MB", address, done / 1e6, total / 1e6)

    def first_pull() -> None:
        log.info("pulling %s, once, into %s ...", address, target)
        pull(address, target, progress=say)

    make_once(
        target.with_name(f"{target.name}.first"),  # the pull itself locks the target
        target.is_dir,
        first_pull,
        lambda: log.info("waiting for another process that pulls %s ...", address),
    )
    return target


def cached_folder(address: str) -> Path:
    """Return the folder in the cache of the index of an address.

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
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Pulled:
    """Make a folder the index of a pack, in one step; readers keep the generation that they have open.

    ``address`` is a file, a URL (http, https, or whatever fsspec reads, such as s3), or
    ``hf:OWNER/NAME@REVISION/FILE``: a file, by default ``index.tar.zst``, of a data set at Hugging Face.
    ``folder`` is by default that of `cached_folder`. An index that was pulled before is replaced by a newer
    one; ``overwrite`` replaces any index. An interrupted download goes on with the next call.

    Raises PackError for what cannot be read, is damaged or malformed, IndexBuildError for another index or
    other files in the folder, and where another process writes to it, OutputError where it cannot be written
    or the disk is too full.

    >>> _ = pack_index("indexes/sample", "sample.tar.zst")
    >>> pull("sample.tar.zst", "indexes/pulled").pack.papers
    128
    """
    target = Path(os.path.realpath(cached_folder(address) if folder is None else folder))
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file; choose a folder")
    staging = target.with_name(f".{target.name}.pulling")
    index, partial = staging / "index", staging / "download"
    with write_lock(target):
        try:
            with _opened(address, partial) as stream:
                archive = _Archive(stream, address)
                if was_there := _is_there(target, archive.pack, overwrite):
                    write_text(target / DESCRIPTION, _encoded(archive.pack).decode())
                else:
                    archive.unpack(index, target, progress)
                    publish(index, target)
                    write_text(target / DESCRIPTION, _encoded(archive.pack).decode())
                    clean(target)
            partial.unlink(missing_ok=True)
            return Pulled(target, archive.pack, was_there)
        except _NoPackError:
            partial.unlink(missing_ok=True)
            raise
        except OSError as error:
            raise file_error(error, target) from error
        finally:
            shutil.rmtree(index, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: the next call goes on
                staging.rmdir()


def _is_there(target: Path, pack: Pack, overwrite: bool) -> bool:
    """Return whether a folder is the index of a pack already; refuse what must not be replaced."""
    if not target.is_dir() or not any(target.iterdir()):
        return False
    try:
        present = read_manifest(target).digest
    except IndexFormatError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise IndexBuildError(
                f"expected no such path, or an index, at {target}, found other files; choose another `folder`"
            ) from error
        present = ""
    if overwrite:
        return False
    if present == pack.digest:
        return True
    before = pulled_as(target)
    if before is None or before.digest != present:
        found = "one that was changed since" if before and present else "one that was not pulled"
        raise IndexBuildError(
            f"expected an index as it was pulled at {target}, found {found if present else 'a damaged one'}; "
            "choose another `folder`, or replace it with `overwrite`"
        )
    return False


class _Archive:
    """A pack that is being read: its description at once, the rest by `unpack`."""

    def __init__(self, stream: IO[bytes], address: str) -> None:
        import zstandard

        self._address = address
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._stream = decompressor.stream_reader(stream, read_across_frames=True)
        self._error = zstandard.ZstdError
        name, size = self._member() or ("", 0)
        if name != DESCRIPTION or size > _LONGEST:
            raise _no_pack(address)
        self.pack = _decoded(self._content(size), address)

    def unpack(self, folder: Path, target: Path, progress: Progress | None) -> None:
        """Unpack the index into a folder; every file is as its manifest says.

        tarfile's own extraction reads extended headers, of any size, into memory, and decides by itself what
        a member may do; here a member is a plain file that the manifest names, with the size that it states.
        """
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "lucene").mkdir(parents=True)
        name, size = self._member() or ("", 0)
        if name == "segments.json":
            raise _NoPackError(
                f"{self._address}: expected a pack of one segment, found one of several, of qbe 0.9 "
                "or before; ask its author to pack the index again"
            )
        if name != MANIFEST or size > _LONGEST:
            raise self._malformed(name or MANIFEST)
        (folder / MANIFEST).write_bytes(self._content(size))
        try:
            manifest = read_manifest(folder)
        except IndexFormatError as error:
            raise self._malformed(MANIFEST) from error
        total, done = sum(entry["bytes"] for entry in manifest.files.values()), 0
        free = shutil.disk_usage(folder).free
        if total + _RESERVE > free:
            raise OutputError(
                f"cannot write {target}: expected {(total + _RESERVE) / 1e6:,.0f} MB of disk, found "
                f"{free / 1e6:,.0f}; free some space or choose another disk"
            )
        missing = dict(manifest.files)
        while member := self._member():
            name, size = member
            entry = missing.pop(name, None)
            if entry is None or entry["bytes"] != size or not _FILE.fullmatch(name):
                raise self._malformed(name)
            sha256, left = hashlib.sha256(), size
            with (folder / name).open("wb") as file:
                while left:
                    block = self._read(min(_BLOCK, left))
                    sha256.update(block)
                    file.write(block)
                    left -= len(block)
                    done += len(block)
                    if progress is not None:
                        progress(done, total)
            self._read(-size % tarfile.BLOCKSIZE)
            if entry.get("sha256") not in (None, sha256.hexdigest()):
                raise self._damaged(name)
        if missing:
            raise self._damaged(next(iter(missing)))
        with contextlib.suppress(OSError):  # not empty
            (folder / "lucene").rmdir()
        try:
            open_generation(folder).close()
        except IndexFormatError as error:
            raise self._malformed("the index") from error
        if (manifest.digest, manifest.corpus["papers"]) != (self.pack.digest, self.pack.papers):
            raise self._malformed("the index")

    def _malformed(self, name: str) -> PackError:
        return _NoPackError(
            f"{self._address}: {name!r:.60} is not what a pack of an index has there; qbe pack did not write "
            "it: do not trust it"
        )

    def _damaged(self, name: str) -> PackError:
        return _NoPackError(
            f"{self._address}: expected {name} as it was packed, found other bytes; the pack was damaged or "
            "cut off on the way: get it again"
        )

    def _member(self) -> tuple[str, int] | None:
        """Return name and size of the next file; None at the end of the archive."""
        header = self._read(tarfile.BLOCKSIZE)
        if not any(header):
            return None
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError) as error:
            raise _no_pack(self._address) from error
        if not member.isreg() or member.size < 0:
            raise self._malformed(member.name)
        return member.name, member.size

    def _content(self, size: int) -> bytes:
        content = self._read(size)
        self._read(-size % tarfile.BLOCKSIZE)
        return content

    def _read(self, count: int) -> bytes:
        """Read exactly so many bytes."""
        parts: list[bytes] = []
        try:
            while count and (part := self._stream.read(count)):
                parts.append(part)
                count -= len(part)
        except self._error as error:
            raise _no_pack(self._address) if not hasattr(self, "pack") else self._damaged("it") from error
        if count:
            raise self._damaged("it") if hasattr(self, "pack") else _no_pack(self._address)
        return b"".join(parts)


def _no_pack(address: str) -> PackError:
    return _NoPackError(f"{address}: expected a pack, as qbe pack writes them, found another file; check it")


def _decoded(text: bytes, address: str) -> Pack:
    """Decode a description; those of qbe 0.8 have further fields and list the files."""
    try:
        record = json.loads(text)
        if record["format"] == 1:
            record["bytes"] = sum(file["bytes"] for file in record["files"])
        elif record["format"] != 2:
            raise ValueError(f"the format {record['format']}")
        pack = Pack(**{field.name: record[field.name] for field in dataclasses.fields(Pack)})
        texts, counts = (pack.encoder, pack.license, pack.source), (pack.papers, pack.sentences, pack.bytes)
        if not (
            isinstance(pack.digest, str)
            and all(text is None or isinstance(text, str) for text in texts)
            and all(type(count) is int and count >= 0 for count in counts)
        ):
            raise TypeError("other values")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _NoPackError(
            f"{address}: expected the description of a pack, found another text ({error!s:.100}); get it "
            "from its author again"
        ) from error
    return pack


def _pack_of_file(path: Path) -> Pack | None:
    with path.open("rb") as stream, contextlib.suppress(PackError):
        return _Archive(stream, str(path)).pack
    return None


@contextlib.contextmanager
def _opened(address: str, partial: Path) -> Iterator[IO[bytes]]:
    """Open a pack as a stream of its bytes; what comes of a URL is kept in ``partial``."""
    stream: IO[bytes]
    try:
        if address.startswith(HUB):
            stream = _from_hub(address).open("rb")
        elif address.startswith(("http://", "https://")):
            fail = functools.partial(_unreadable, address)
            stream = io.BufferedReader(web.Download(address, partial, fail), _BLOCK)
        elif is_remote(address):
            stream = open_address(address)
        else:
            stream = Path(address).open("rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unreadable(address, web.reason_of(error)) from error
    with stream:
        yield stream


def _from_hub(address: str) -> Path:
    """Return the file of a pack in huggingface_hub's cache, which resumes and verifies downloads."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    match = _HUB.fullmatch(address)
    if match is None:
        raise PackError(
            f"expected {HUB}OWNER/NAME, or {HUB}OWNER/NAME@REVISION/FILE, found {address}; check it"
        )
    file = match["file"] or HUB_FILE
    try:
        folder = snapshot_download(
            match["repo"], repo_type="dataset", revision=match["revision"], allow_patterns=[file]
        )
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise _unreadable(address, " ".join(str(error).split())[:200]) from error
    return Path(folder, file)


def _unreadable(address: str, reason: str) -> PackError:
    return PackError(f"cannot read {address}: {reason}; check the address and the network")
