"""Sharing an index as one file, a tar archive compressed with zstd, and pulling it from a file, URL or hub.

The archive holds ``pack.json`` (its description), ``manifest.json``, and the files that the manifest names.
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from qbe.corpus.records import dump_record
from qbe.corpus.streams import open_address
from qbe.errors import IndexBuildError, IndexFormatError, OutputError, PackError, UsageError, file_error
from qbe.index import store
from qbe.index.papers import OFFSETS
from qbe.index.store import MANIFEST, RECORDS, Manifest
from qbe.models import made_once
from qbe.types import TEXT_NOT_INCLUDED
from qbe.util import web
from qbe.util.files import HUB, atomic_file, cache_folder, check_output, is_remote, write_text
from qbe.util.work import thread_count

DESCRIPTION = "pack.json"
HUB_FILE = "index.tar.zst"  # of a Hugging Face data set, where no other is named
_HUB = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>[\w./-]+))?", re.ASCII
)
_FILE = re.compile(r"[a-z_]+(\.[a-z]+)+|lucene/\w+(\.\w+)*", re.ASCII)  # no other file is written
_BLOCK = 1 << 20
_LONGEST = 16 << 20  # bytes of pack.json and of manifest.json
_WINDOW = 128 << 20  # memory that zstd may use to look back

Progress = Callable[[int, int], object]  # called with bytes done and bytes in all


@dataclass(frozen=True, slots=True)
class Pack:
    """The description of a packed index; ``abstracts`` says whether their texts are included."""

    digest: str
    papers: int
    sentences: int
    encoder: str | None
    abstracts: bool
    license: str | None
    source: str | None
    bytes: int

    def write(self, folder: Path) -> None:
        record = {"format": 2, "qbe_version": version("qbe"), **dataclasses.asdict(self)}
        write_text(folder / DESCRIPTION, json.dumps(record, indent=1) + "\n")


class _NoPackError(PackError):
    """A pack that is damaged or malformed; nothing of it is kept."""


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
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress = lambda done, total: None,  # noqa: ARG005
) -> tuple[Pack, int]:
    """Write the newest generation of an index to a file, from which `pull` makes the same index; return its
    description and size.

    ``license`` and ``source`` are by default those that the index was pulled with. Without the texts of
    ``abstracts`` the digest is another. The same index gives the same bytes.
    """
    import zstandard

    folder, output = Path(folder), Path(output)
    check_output(output, overwrite)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with (
            contextlib.closing(store.open_generation(folder)) as generation,
            tempfile.TemporaryDirectory(prefix=".", dir=output.parent) as replaced,
        ):
            generation.verify()
            manifest = generation.manifest
            if not abstracts:
                manifest = _leave_out_abstracts(generation, Path(replaced))
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
            pack.write(Path(replaced))
            compressor, done = zstandard.ZstdCompressor(3, threads=thread_count(threads)), 0
            with atomic_file(output) as stream:
                with compressor.stream_writer(stream, closefd=False) as archive:
                    for name in (DESCRIPTION, MANIFEST, *manifest.files):
                        path = Path(replaced, name)
                        path = path if path.exists() else generation.folder / name
                        member = tarfile.TarInfo(name)
                        member.size = path.stat().st_size
                        archive.write(member.tobuf(tarfile.GNU_FORMAT))
                        with path.open("rb") as file:
                            shutil.copyfileobj(file, archive, _BLOCK)
                        done += member.size if name in manifest.files else 0
                        progress(done, size)
                        archive.write(bytes(-member.size % tarfile.BLOCKSIZE))
                    archive.write(bytes(2 * tarfile.BLOCKSIZE))
                return pack, stream.tell()
    except OSError as error:
        raise file_error(error, output) from error


def _leave_out_abstracts(generation: store.Generation, folder: Path) -> Manifest:
    """Write papers with `TEXT_NOT_INCLUDED` for each sentence, and the manifest of an index of them."""
    manifest = generation.manifest
    stored = [name for name in ("positions", "docvectors") if (manifest.lucene or {}).get(name)]
    if stored:
        raise UsageError(
            "expected an index without positions of words, from which texts can be put together again, "
            f"found one with; build it without `{stored[0]}`"
        )
    offsets = [0]
    with generation.open(RECORDS) as lines, (folder / RECORDS).open("wb") as records:
        for line in lines:
            record = json.loads(line)
            record["abstract"] = [TEXT_NOT_INCLUDED] * len(record["abstract"])
            offsets.append(offsets[-1] + records.write(dump_record(record)))
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    files = {**manifest.files, **store.describe_files(folder)}
    corpus = {**manifest.corpus, "sha256": files[RECORDS]["sha256"]}
    summed = store.digest(files, manifest.lucene)
    changed = dataclasses.replace(manifest, corpus=corpus, files=files, digest=summed)
    store.write_manifest(folder, changed)
    return changed


def pulled_as(folder: Path) -> Pack | None:
    try:
        return _description((folder / DESCRIPTION).read_bytes(), DESCRIPTION)
    except (OSError, PackError):
        return None


def local_folder(address: str | os.PathLike[str]) -> Path:
    """Return the folder of an index; that of an address is pulled into the cache the first time."""
    if not is_remote(address):
        return Path(address)
    address = str(address)
    target = cached_folder(address)
    once = target.with_name(f"{target.name}.first")  # the pull itself locks the target
    return made_once(target, f"pulling {address}", lambda: pull(address, target), once)


def cached_folder(address: str) -> Path:
    """Return the folder in the cache of the index of an address."""
    named = address if is_remote(address) else os.path.realpath(address)
    name = Path(named.rstrip("/")).name.partition(".")[0]
    return cache_folder() / "indexes" / f"{name}-{sha256(named.encode()).hexdigest()[:8]}"


def pull(
    address: str,
    folder: str | Path | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,  # noqa: ARG005
) -> Pulled:
    """Make a folder the index of a pack, in one step; readers keep the generation that they have open.

    ``address`` is a file, a URL (http, https, or whatever fsspec reads, such as s3), or
    ``hf:OWNER/NAME@REVISION/FILE``: a file, by default ``index.tar.zst``, of a data set at Hugging Face.
    ``folder`` is by default that of `cached_folder`. An index that was pulled before is replaced by a newer
    one; ``overwrite`` replaces any. An interrupted download goes on with the next call. Raises PackError,
    IndexBuildError for another index or other files in the folder, OutputError.
    """
    target = Path(os.path.realpath(cached_folder(address) if folder is None else folder))
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write {target}: it is a file; choose a folder")
    staging = target.with_name(f".{target.name}.pulling")
    index, download = staging / "index", staging / "download"
    with store.write_lock(target):
        try:
            with _opened(address, download) as stream:
                pack, was_there = _unpacked(stream, address, index, target, overwrite, progress)
                if not was_there:
                    store.publish(index, target)
                pack.write(target)
                store.clean(target)
            download.unlink(missing_ok=True)
            return Pulled(target, pack, was_there)
        except _NoPackError:
            download.unlink(missing_ok=True)
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
        present = store.read_manifest(target).digest
    except IndexFormatError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise IndexBuildError(
                f"expected no such path, or an index, at {target}, found other files; choose another `folder`"
            ) from error
        present = ""
    if overwrite or present == pack.digest:
        return not overwrite
    before = pulled_as(target)
    if before is None or before.digest != present:
        raise IndexBuildError(
            f"expected an index as it was pulled at {target}, found one that was not, or that was changed "
            "since, or is damaged; choose another `folder`, or replace it with `overwrite`"
        )
    return False


def _unpacked(
    stream: IO[bytes], address: str, folder: Path, target: Path, overwrite: bool, progress: Progress
) -> tuple[Pack, bool]:
    """Unpack an index into a folder unless the ``target`` is it; return its description and whether it is."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    archive = io.BufferedReader(decompressor.stream_reader(stream, read_across_frames=True), _BLOCK)
    pack: Pack | None = None
    entries: dict[str, Any] = {DESCRIPTION: None}
    name, total, done = "", 0, 0
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lucene").mkdir(parents=True)
    try:
        while any(header := archive.read(tarfile.BLOCKSIZE)):
            # tarfile extracts extended headers of any size; a member here is a plain file of the manifest.
            member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            name, left = member.name, member.size
            entry = entries.pop(name, {"bytes": -1})
            if not member.isreg() or not (
                0 <= left <= _LONGEST if entry is None else entry["bytes"] == left and _FILE.fullmatch(name)
            ):
                raise ValueError("a member that is not as it should be")
            with (folder / name).open("wb") as file:
                while left and (block := archive.read(min(_BLOCK, left))):
                    left -= file.write(block)
                    done += len(block) if entry else 0
                    progress(done, total)
            if left:
                raise EOFError
            archive.read(-member.size % tarfile.BLOCKSIZE)
            if name == DESCRIPTION:
                pack = _description((folder / name).read_bytes(), address)
                (folder / name).unlink()
                if _is_there(target, pack, overwrite):
                    return pack, True
                entries = {MANIFEST: None}
            elif name == MANIFEST:
                entries = dict(store.read_manifest(folder).files)
                total = sum(entry["bytes"] for entry in entries.values())
        if entries or not header or pack is None:
            raise EOFError
        with contextlib.suppress(OSError):  # not empty
            (folder / "lucene").rmdir()
        with contextlib.closing(store.open_generation(folder)) as generation:
            generation.verify()
            manifest = generation.manifest
        if (manifest.digest, manifest.corpus["papers"]) != (pack.digest, pack.papers):
            raise ValueError("another index")
        return pack, False
    except (ValueError, EOFError, IndexFormatError, tarfile.HeaderError, zstandard.ZstdError) as error:
        if pack is None:
            text = "expected a pack, as qbe pack writes them, found another file; check it"
        elif isinstance(error, ValueError):
            text = f"{name!r:.60} is not what a pack of an index has there: do not trust it"
        else:
            text = f"expected {name} as it was packed, found other bytes; it was damaged: get it again"
        raise _NoPackError(f"{address}: {text}") from error


def _description(text: bytes, address: str) -> Pack:
    try:
        record = json.loads(text)
        if record["format"] != 2:
            raise ValueError(f"the format {record['format']}")
        pack = Pack(**{field.name: record[field.name] for field in dataclasses.fields(Pack)})
        if not isinstance(pack.digest, str):
            raise TypeError(f"digest {pack.digest!r:.60}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _NoPackError(
            f"{address}: expected the description of a pack, found another text ({error!s:.100}); get it "
            "from its author again"
        ) from error
    return pack


@contextlib.contextmanager
def _opened(address: str, download: Path) -> Iterator[IO[bytes]]:
    """Open a pack as a stream of its bytes; what comes of a URL is kept in ``download``."""

    def unreadable(reason: str) -> PackError:
        return PackError(f"cannot read {address}: {reason}; check the address and the network")

    stream: IO[bytes]
    try:
        if address.startswith(HUB):
            from huggingface_hub import snapshot_download  # which resumes and verifies downloads
            from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

            if (match := _HUB.fullmatch(address)) is None:
                raise PackError(
                    f"expected {HUB}OWNER/NAME, or {HUB}OWNER/NAME@REVISION/FILE, found {address}; check it"
                )
            repo, revision, file = match["repo"], match["revision"], match["file"] or HUB_FILE
            try:
                copy = snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=[file])
            except (HfHubHTTPError, LocalEntryNotFoundError) as error:
                raise unreadable(" ".join(str(error).split())[:200]) from error
            stream = Path(copy, file).open("rb")  # noqa: SIM115
        elif address.startswith(("http://", "https://")):
            stream = io.BufferedReader(web.Download(address, download, unreadable), _BLOCK)
        else:
            stream = open_address(address) if is_remote(address) else Path(address).open("rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise unreadable(web.reason_of(error)) from error
    with stream:
        yield stream
