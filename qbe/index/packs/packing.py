"""Packing an index: its newest commit as one file."""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import zstandard

from qbe.errors import OutputError, PackError, file_error
from qbe.files import atomic_file
from qbe.index.manifest import MANIFEST
from qbe.index.packs.abstracts import write_without_abstracts
from qbe.index.packs.layout import (
    DESCRIPTION,
    END,
    Pack,
    PackedFile,
    decode_description,
    encode_description,
    header,
    padding,
    read_header,
    tar_header,
)
from qbe.index.snapshot import COMMIT, ROOT, Snapshot, open_snapshot
from qbe.index.views import combined_manifest
from qbe.parallel import thread_count

_LEVEL = 3
_BLOCK = 1 << 20

Progress = Callable[[int, int], object]
"""Called with bytes that are done, and all bytes."""


class Member(NamedTuple):
    """A file of an index: its name, its size in bytes, and a function that opens it."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


class Packed(NamedTuple):
    """A pack that was written: its description, the SHA-256 of it that a registry states, and its bytes."""

    pack: Pack
    sha256: str
    bytes: int


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
    """Write the newest commit of an index to a file, from which `qbe.index.packs.pulling.pull` makes the same
    index, to the same digest.

    ``license`` and ``source`` are those of the papers; by default those that the index was pulled with.
    Without ``abstracts`` their texts are left out (see `qbe.index.packs.abstracts`); the digest is another.
    The same commit gives the same bytes, whatever the ``threads``. An index that is changed meanwhile is
    packed as it was in the beginning. Needs disk space for the pack twice.

    Raises IndexFormatError for a folder that is no sound index, UsageError for one with positions that is to
    be packed without abstracts, OutputError for a file that exists and is no pack, or cannot be written.

    >>> packed = pack_index("indexes/sample", "sample.tar.zst", license="CC0-1.0")
    >>> packed.pack.papers, packed.pack.digest == index.manifest.digest
    (128, True)
    """
    folder, output = Path(folder), Path(output)
    _check_output(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            snapshot, members = _members(folder, stack)
            if not abstracts:
                titles = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".", dir=output.parent)))
                write_without_abstracts(snapshot, titles)
                snapshot, members = _members(titles, stack)
            before, manifest = pulled_as(folder), combined_manifest(snapshot)
            frames = stack.enter_context(tempfile.TemporaryFile(dir=output.parent))
            advance = progress or (lambda *_: None)
            pack = Pack(
                digest=manifest.digest,
                generation=snapshot.generation,
                papers=manifest.corpus["papers"],
                sentences=manifest.corpus["sentences"],
                encoder=manifest.dense["encoder"]["name"] if manifest.dense else None,
                abstracts=abstracts and (before is None or before.abstracts),
                license=license or (before.license if before else None),
                source=source or (before.source if before else None),
                qbe_version=version("qbe"),
                files=list(_frames(members, frames, thread_count(threads), advance)),
            )
            return _write(output, pack, frames)
    except OSError as error:
        raise file_error(error, output) from error


def pulled_as(folder: Path) -> Pack | None:
    """The description of the pack that an index was pulled from; None where there is none.

    >>> pulled_as(Path("indexes/sample")) is None
    True
    """
    try:
        return decode_description((folder / DESCRIPTION).read_bytes(), str(folder / DESCRIPTION))
    except (OSError, PackError):
        return None


def _members(folder: Path, stack: ExitStack) -> tuple[Snapshot, list[Member]]:
    """The newest commit of an index, which is closed with the stack, and its files."""
    while True:
        snapshot = stack.enter_context(closing(open_snapshot(folder)))
        with suppress(FileNotFoundError):  # of a commit that is gone
            members = list(files_of(snapshot))
            with closing(open_snapshot(folder)) as newest:
                if snapshot.is_same(newest):  # so that what was read by its name is of this commit
                    return snapshot, members


def files_of(snapshot: Snapshot) -> Iterator[Member]:
    """All files of a commit; small ones are read at once. Raises OSError.

    >>> snapshot = open_snapshot(index.folder)
    >>> [member.name for member in files_of(snapshot)][:3]
    ['manifest.json', 'facets.npy', 'faiss.index']
    >>> snapshot.close()
    """
    if snapshot.generation:
        yield _read(snapshot.folder, COMMIT)
    for opened in snapshot.segments:
        prefix = "" if opened.segment.name == ROOT else f"{opened.segment.name}/"
        yield _read(snapshot.folder, prefix + MANIFEST)
        if opened.segment.deletions is not None:
            yield _read(snapshot.folder, opened.segment.deletions.file)
        for name, entry in opened.manifest.files.items():
            yield Member(prefix + name, entry["bytes"], partial(opened.files.stream, name))


def _read(folder: Path, name: str) -> Member:
    content = (folder / name).read_bytes()
    return Member(name, len(content), lambda: io.BytesIO(content))


def _check_output(output: Path) -> None:
    """Raise OutputError where a file exists that has content and is no pack."""
    try:
        if output.is_file() and output.stat().st_size:
            with output.open("rb") as stream:
                read_header(stream, str(output))
    except (OSError, PackError) as error:
        raise OutputError(
            f"{output}: expected no such file, or a pack to replace, found another file; choose another "
            "`output`, or remove it"
        ) from error


def _frames(
    members: Sequence[Member], frames: IO[bytes], threads: int, progress: Progress
) -> Iterator[PackedFile]:
    """Write a frame for each file."""
    done, total = 0, sum(member.size for member in members)
    for member in members:
        before, after = tar_header(member.name, member.size), padding(member.size)
        whole = len(before) + member.size + len(after)
        compressor = zstandard.ZstdCompressor(_LEVEL, threads=threads).compressobj(size=whole)
        digest, frame_digest, begin = hashlib.sha256(), hashlib.sha256(), frames.tell()
        with member.open() as stream:
            for block in chain([before], iter(partial(stream.read, _BLOCK), b""), [after]):
                if block is not before and block is not after:
                    digest.update(block)
                    progress(done := done + len(block), total)
                frame = compressor.compress(block)
                frame_digest.update(frame)
                frames.write(frame)
        frame = compressor.flush()
        frame_digest.update(frame)
        frames.write(frame)
        size = frames.tell() - begin
        yield PackedFile(member.name, member.size, digest.hexdigest(), size, frame_digest.hexdigest())


def _write(output: Path, pack: Pack, frames: IO[bytes]) -> Packed:
    """Write a pack, of whose files the frames were written."""
    text = encode_description(pack)
    compress = zstandard.ZstdCompressor(_LEVEL).compress
    description = compress(tar_header(DESCRIPTION, len(text)) + text + padding(len(text)))
    frames.seek(0)
    with atomic_file(output) as stream:
        stream.write(header(description) + description)
        shutil.copyfileobj(frames, stream, _BLOCK)
        stream.write(compress(END))
        size = stream.tell()
    return Packed(pack, hashlib.sha256(description).hexdigest(), size)
