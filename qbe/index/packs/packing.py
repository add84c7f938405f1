"""Packing an index: its newest commit as one file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import zstandard

from qbe.corpus.records import dump_record
from qbe.errors import OutputError, PackError, UsageError, file_error
from qbe.index.manifest import MANIFEST, describe_files, digest, write_manifest
from qbe.index.packs.layout import (
    DESCRIPTION,
    END,
    Member,
    Pack,
    PackedFile,
    Progress,
    encode_description,
    files_of,
    header,
    padding,
    pulled_as,
    read_header,
    tar_header,
)
from qbe.index.papers import OFFSETS, RECORDS
from qbe.index.snapshot import (
    Commit,
    OpenSegment,
    Segment,
    Snapshot,
    open_snapshot,
    write_commit,
)
from qbe.index.views import combined_manifest
from qbe.types import TEXT_NOT_INCLUDED
from qbe.util.files import atomic_file
from qbe.util.parallel import thread_count

_LEVEL = 3
_BLOCK = 1 << 20


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
    Without ``abstracts`` their texts are left out (see `write_without_abstracts`); the digest is another.
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


def _members(folder: Path, stack: ExitStack) -> tuple[Snapshot, list[Member]]:
    """The newest commit of an index, which is closed with the stack, and its files."""
    while True:
        snapshot = stack.enter_context(closing(open_snapshot(folder)))
        with suppress(FileNotFoundError):  # of a commit that is gone
            members = list(files_of(snapshot))
            with closing(open_snapshot(folder)) as newest:
                if snapshot.is_same(newest):  # so that what was read by its name is of this commit
                    return snapshot, members


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


def write_without_abstracts(snapshot: Snapshot, folder: Path) -> None:
    """Make a folder the index of a commit, with `qbe.types.TEXT_NOT_INCLUDED` for each sentence.

    All files but those of the papers are links to the commit's own; titles and metadata stay. Raises
    UsageError where postings or term vectors have positions, from which texts could be put together again,
    IndexFormatError for a damaged index.

    >>> from qbe.index.reader import IndexReader
    >>> from qbe.index.snapshot import open_snapshot
    >>> snapshot = open_snapshot(index.folder)
    >>> write_without_abstracts(snapshot, Path("indexes/titles"))
    >>> snapshot.close()
    >>> IndexReader(Path("indexes/titles")).paper("s036").sentences[0].text
    '(text not included)'
    """
    segments = []
    for opened in snapshot.segments:
        lucene = opened.manifest.lucene or {}
        if stored := next((name for name in ("positions", "docvectors") if lucene.get(name)), None):
            raise UsageError(
                "expected an index without positions of words, from which texts can be put together again, "
                f"found one with; build it without `{stored}`"
            )
        segments.append(_write_segment(opened, folder / opened.segment.name))
        if opened.segment.deletions is not None:
            _link(snapshot.folder, folder, opened.segment.deletions.file)
    if snapshot.generation:
        write_commit(folder, Commit(snapshot.generation, segments))


def _write_segment(opened: OpenSegment, folder: Path) -> Segment:
    folder.mkdir(parents=True, exist_ok=True)
    opened.files.verify([RECORDS])
    offsets = [0]
    with opened.files.stream(RECORDS) as lines, (folder / RECORDS).open("wb") as records:
        for line in lines:
            record = json.loads(line)
            record["abstract"] = [TEXT_NOT_INCLUDED] * len(record["abstract"])
            offsets.append(offsets[-1] + records.write(dump_record(record)))
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    described = describe_files(folder, leave_out=[MANIFEST])
    manifest = opened.manifest
    files = {name: described.get(name, entry) for name, entry in manifest.files.items()}
    for name in files.keys() - described.keys():
        _link(opened.files.folder, folder, name)
    manifest = dataclasses.replace(
        manifest,
        corpus={**manifest.corpus, "sha256": files[RECORDS]["sha256"]},
        files=files,
        digest=digest(files, manifest.lucene),
    )
    write_manifest(folder, manifest)
    return dataclasses.replace(opened.segment, digest=manifest.digest)


def _link(source: Path, folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to((source / name).absolute())
