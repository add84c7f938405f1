"""The file of a pack: a tar archive in frames of zstd, one for each file, which are found without the others.

It begins with a frame that zstd skips: the format, and length and SHA-256 of the frame that follows, which
holds the description, ``pack.json``. The description states length and SHA-256 of each further frame, and of
the file in it, in their order. So whoever knows the first 59 bytes knows whether all others are the right
ones, and reads any file by itself; and ``tar --zstd -xf`` unpacks the whole into a folder, which is an index.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import zstandard

from qbe.errors import PackError
from qbe.index.manifest import MANIFEST, PULLED
from qbe.index.snapshot import COMMIT, ROOT, Snapshot

DESCRIPTION = PULLED
"""The description's name in the archive."""
FORMAT = 1
HEADER_BYTES = 59

_SKIPPED = b"\x51\x2a\x4d\x18" + (HEADER_BYTES - 8).to_bytes(4, "little")
_NAME = b"qbe pack "
_LONGEST = 16 << 20
"""Bytes of a description: a segment has some thirty files, of 300 bytes each."""
_WINDOW = 128 << 20
"""Bytes that zstd may look back, which it keeps in memory."""
_BLOCK = 1 << 20
_TAR_BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * _TAR_BLOCK)
"""What ends a tar archive."""

_SEGMENT_FILE = r"[a-z_]+(\.[a-z]+)+|lucene/\w+(\.\w+)*"
_FILE = re.compile(
    rf"(segments/\d{{6,}}/)?({_SEGMENT_FILE})|segments\.json|deleted/\w+\.\d{{6,}}\.npy", re.ASCII
)
"""Names that files of an index have; no other is written."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class MalformedPackError(PackError):
    """A pack that something else than `qbe.index.packs.packing` wrote: nothing of it is kept."""


Progress = Callable[[int, int], object]
"""Called with bytes that are done, and all bytes."""


class Reads(Protocol):
    """What bytes are read from, a file or an address."""

    def read(self, count: int, /) -> bytes:
        """At most so many bytes, none at the end."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file of an index: its name, size in bytes and SHA-256, and those of the frame that holds it."""

    name: str
    bytes: int
    sha256: str
    frame_bytes: int
    frame_sha256: str


@dataclass(frozen=True, slots=True)
class Pack:
    """The description of a pack: the ``digest`` of the index and its generation, how many papers and
    sentences it has, the ``encoder`` (None without vectors), whether it has the texts of ``abstracts``,
    ``license`` and ``source`` of the papers (None where they were not stated), and its files in the order of
    their frames.
    """

    digest: str
    generation: int
    papers: int
    sentences: int
    encoder: str | None
    abstracts: bool
    license: str | None
    source: str | None
    qbe_version: str
    files: Sequence[PackedFile]

    @property
    def bytes(self) -> int:
        """The bytes of the index."""
        return sum(file.bytes for file in self.files)

    @property
    def frame_bytes(self) -> int:
        """The bytes of the files in the pack."""
        return sum(file.frame_bytes for file in self.files)


def encode_description(pack: Pack) -> bytes:
    """The JSON text of a description, which is the same for the same pack.

    >>> pack = Pack("0" * 64, 0, 2, 9, "facet-encoder", True, "CC0", None, "0.8.0", ())
    >>> decode_description(encode_description(pack), "a.tar.zst") == pack
    True
    """
    return (json.dumps({"format": FORMAT, **asdict(pack)}, indent=1) + "\n").encode()


def decode_description(text: bytes, name: str) -> Pack:
    """The description of a JSON text, checked; ``name`` is that of the pack, for messages.

    Raises PackError for a text that is no description: a file that no index has, or one twice.
    """
    try:
        record: dict[str, Any] = json.loads(text)
        if record.pop("format") != FORMAT:
            raise ValueError("another format")
        files = tuple(PackedFile(**file) for file in record.pop("files"))
        pack = Pack(**record, files=files)
        _check(pack)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedPackError(
            f"{name}: expected the description of a pack, found another text "
            f"({error!s:.100}); get it from its author again"
        ) from error
    return pack


def _check(pack: Pack) -> None:
    """Raise ValueError or TypeError for values that no pack has."""
    names = [file.name for file in pack.files]
    for each in names:
        if len(each) > tarfile.LENGTH_NAME or not _FILE.fullmatch(each):
            raise ValueError(f"the file {each!r}")
    if len(set(names)) < len(names):
        raise ValueError("a file that occurs twice")
    sizes = [pack.generation, pack.papers, pack.sentences]
    sizes += [size for file in pack.files for size in (file.bytes, file.frame_bytes)]
    if not all(type(size) is int and 0 <= size < 1 << 53 for size in sizes):
        raise ValueError("a number that is none")
    digests = [pack.digest, *(digest for file in pack.files for digest in (file.sha256, file.frame_sha256))]
    if not all(_DIGEST.fullmatch(digest) for digest in digests):
        raise ValueError("a digest that is none")
    texts = (pack.encoder, pack.license, pack.source, pack.qbe_version)
    if not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError("a text that is none")


def header(description: bytes) -> bytes:
    """The first bytes of a pack, by the frame of its description."""
    length = len(description).to_bytes(8, "little")
    return _SKIPPED + _NAME + b"%02d" % FORMAT + length + hashlib.sha256(description).digest()


def read_header(stream: Reads, name: str) -> tuple[bytes, str]:
    """The JSON text of a pack's description, and the SHA-256 of the frame that it is in, which is that of the
    whole pack.

    Raises PackError for what is no pack, for one of another format, and for a damaged one.
    """
    head = read_exactly(stream, HEADER_BYTES)
    begin = _SKIPPED + _NAME
    if not head.startswith(begin) or len(head) < HEADER_BYTES:
        raise PackError(f"{name}: expected a pack, as qbe pack writes them, found another file; check it")
    version = head[len(begin) : len(begin) + 2]
    if version != b"%02d" % FORMAT:
        raise PackError(
            f"{name}: expected a pack of format {FORMAT}, found format {version.decode(errors='replace')}; "
            "use the version of qbe that wrote it"
        )
    length, digest = int.from_bytes(head[-40:-32], "little"), head[-32:]
    if not 0 < length <= _LONGEST:
        raise PackError(
            f"{name}: expected a description of at most {_LONGEST >> 20} MiB, found {length:,} bytes"
        )
    frame = read_exactly(stream, length)
    if hashlib.sha256(frame).digest() != digest:
        raise damaged(name, DESCRIPTION)
    return _content(frame, name), digest.hex()


def _content(frame: bytes, name: str) -> bytes:
    """What the frame of a description holds."""
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(frame)
    try:
        data = read_exactly(reader, _LONGEST + 1)
    except zstandard.ZstdError as error:
        raise malformed(name, DESCRIPTION) from error
    text = data[_TAR_BLOCK:].rstrip(b"\0")
    if len(data) > _LONGEST or data != tar_header(DESCRIPTION, len(text)) + text + padding(len(text)):
        raise malformed(name, DESCRIPTION)
    return text


def damaged(name: str, file: str) -> PackError:
    """The error for bytes that are other ones than were packed."""
    return PackError(
        f"{name}: expected {file} as it was packed, found other bytes; the pack was damaged or cut off on "
        "the way: get it again"
    )


def malformed(name: str, file: str) -> MalformedPackError:
    """The error for a frame that holds something else than the description says."""
    return MalformedPackError(
        f"{name}: expected {file} as the pack describes it, found something else; qbe pack did not write "
        "it: do not trust it"
    )


def tar_header(name: str, size: int) -> bytes:
    """The block before a file in a tar archive, the same for all files of that name and size.

    >>> len(tar_header("papers.jsonl", 7))
    512
    """
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """What follows a file of a size in a tar archive, which consists of blocks.

    >>> len(padding(500)), len(padding(512))
    (12, 0)
    """
    return bytes(-size % _TAR_BLOCK)


def unpack(stream: IO[bytes], file: PackedFile, target: IO[bytes], name: str) -> None:
    """Write the content of a file's frame; ``name`` is that of the pack, for messages.

    Nothing beyond the stated size is written. Raises PackError where it is not as the description says.
    """
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(stream)
    digest, left = hashlib.sha256(), file.bytes
    try:
        if read_exactly(reader, _TAR_BLOCK) != tar_header(file.name, file.bytes):
            raise malformed(name, file.name)
        while left and (block := reader.read(min(_BLOCK, left))):
            digest.update(block)
            target.write(block)
            left -= len(block)
        rest = padding(file.bytes)
        if left or digest.hexdigest() != file.sha256 or read_exactly(reader, len(rest) + 1) != rest:
            raise malformed(name, file.name)
    except zstandard.ZstdError as error:
        raise malformed(name, file.name) from error


def read_exactly(stream: Reads, count: int) -> bytes:
    """So many bytes of a stream, fewer at its end."""
    parts: list[bytes] = []
    while count and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def pulled_as(folder: Path) -> Pack | None:
    """The description of the pack that an index was pulled from; None where there is none.

    >>> pulled_as(Path("indexes/sample")) is None
    True
    """
    try:
        return decode_description((folder / DESCRIPTION).read_bytes(), str(folder / DESCRIPTION))
    except (OSError, PackError):
        return None


class Member(NamedTuple):
    """A file of an index: its name, its size in bytes, and a function that opens it."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def files_of(snapshot: Snapshot) -> Iterator[Member]:
    """All files of a commit; small ones are read at once. Raises OSError.

    >>> from qbe.index.snapshot import open_snapshot
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
