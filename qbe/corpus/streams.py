"""Bytes of a source: a file, plain or compressed, standard input, or an address that fsspec opens; as UTF-8.

The compression follows from the suffix (.gz, .bz2, .xz, .zst, .zip), else from the first bytes, so that
standard input may be compressed too. A zip archive must hold a single file.
"""

import bz2
import codecs
import contextlib
import io
import json
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import IO, Any, cast

from qbe.corpus.names import KINDS
from qbe.errors import CorpusError, MissingDependencyError, RecordError, check_package
from qbe.util.files import is_address

FORMAT_NAMES = (
    *("arxiv", "semantic-scholar", "openalex", "crossref", "pubmed", "acl-anthology", "csl-json", "bibtex"),
    *("ris", "nbib", "wos", "endnote", "refworks", "pdf", "parquet", "jsonl", "table"),
)
STDIN = "-"
MAX_LINE_BYTES = 64 << 20  # real records are far shorter; a longer one would fill the memory
HEAD_BYTES = 1 << 16
MAX_DEPTH = 1000  # of brackets in each other
ZOTERO, DATABASE = "zotero", "zotero.sqlite"
NOT_RECOGNIZED = "format not recognized"  # the reason of the error
_NOT_ASCII, _MOST_FLAWS = re.compile(rb"[\x80-\xff]+"), 4
WESTERN = "cp1252"  # the encoding of Windows; Latin-1 is part of it

_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_MAGIC[b"PK\3\4"] = ".zip"
_BUFFER_BYTES = 1 << 20
_PIECE_BYTES = 1 << 13
_COMPRESSED_BYTES = 1 << 10  # a block of 4 bytes may become 128 KiB: the output of these is at most 32 MiB
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": partial(zlib.decompressobj, 16 + zlib.MAX_WBITS),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
    ".zst": lambda: check_package("zstandard").ZstdDecompressor().decompressobj(write_size=_PIECE_BYTES),
}
_RETURN = re.compile(rb"(?<=\r)(?!\n)(?=.)", re.DOTALL)
_MARKS = dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32")
_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16")
_XML_ENCODING = re.compile(rb"(<\?xml[^>]{0,100}?)\s+encoding\s*=\s*[\"'][^\"']*[\"']")


@dataclass(frozen=True)
class Head:
    """A source's name and first HEAD_BYTES, decompressed, by which its format is recognized."""

    name: str
    data: bytes

    @property
    def suffix(self) -> str:
        """The suffix of the name in lower case, without that of a compression."""
        path = PurePath(self.name)
        return (path.with_suffix("") if path.suffix.lower() in _MAGIC.values() else path).suffix.lower()

    @cached_property
    def text(self) -> str:
        """The bytes as text without leading white space; what is not UTF-8 is replaced."""
        return self.data.decode(errors="replace").lstrip()

    @cached_property
    def record(self) -> dict[str, Any]:
        """The first JSON object, also of an array; empty where there is none or it is cut."""
        try:
            value, _ = json.JSONDecoder().raw_decode(self.text.removeprefix("[").lstrip())
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def has(self, names: str) -> bool:
        """Return True if the first record has all fields (words), or names them where it is cut."""
        if self.record:
            return all(name in self.record for name in names.split())
        is_json = self.text[:1] in ("{", "[") and "\n" not in self.text.rstrip()
        return is_json and all(f'"{name}":' in self.text.replace('" :', '":') for name in names.split())


def head_of(stream: io.BufferedReader, name: str) -> Head:
    """Return the beginning of a stream that is still at its start, and stays there."""
    return Head(name, stream.peek(HEAD_BYTES)[:HEAD_BYTES])


def not_recognized(name: str, kind: str) -> RecordError:
    expected = f"expected {', '.join(FORMAT_NAMES[:-1])} or {FORMAT_NAMES[-1]}, found {kind}"
    advice = "export the papers in one of these formats (reference managers have BibTeX and RIS)"
    if (path := PurePath(name)).name == DATABASE:
        expected, advice = "expected the folder of a Zotero library", f"give `corpus` {ZOTERO}:{path.parent}"
    return RecordError(f"{name}: {NOT_RECOGNIZED}: {expected}; {advice}", NOT_RECOGNIZED)


class Bounded:
    """Ends the reading of a stream with an error where an item is too long, or brackets nest too deeply.

    Parsers take all memory for the one, and quadratic time for the other.
    """

    nests = True  # in brackets

    def __init__(self, stream: io.BufferedReader, where: str, most: int) -> None:
        self._stream, self._most, self.where, self.size, self.depth = stream, most, where, 0, 0
        self.last = deque[bytes](maxlen=8)  # blocks

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.last.append(data)
        self.size += len(data)
        if self.nests:
            self.depth += data.count(b"[") + data.count(b"{") - data.count(b"]") - data.count(b"}")
        limits = (self.size, self._most, "bytes"), (self.depth, MAX_DEPTH, "open brackets")
        if over := next((each for each in limits if each[0] > each[1]), None):
            found = f"at most {over[1]:,} {over[2]} an item, found more; write one a paper"
            raise CorpusError(f"{self.where}: expected {found}")
        return data

    def begin(self, where: str) -> str:
        self.where, self.size, self.depth = where, 0, 0
        return where


def display_name(source: str | Path) -> str:
    return "standard input" if str(source) == STDIN else str(source)


def is_library(source: str) -> bool:
    """Return True for a Zotero library: ``zotero``, ``zotero:FOLDER``, or the folder of its database."""
    name = source.partition(":")[0].partition("/")[0]
    return (name == ZOTERO and not os.path.exists(source)) or Path(source, DATABASE).is_file()  # noqa: PTH110


def is_folder(source: str) -> bool:
    """Return True for a folder; False, not an error, for a path that cannot be examined."""
    return os.path.isdir(source)  # noqa: PTH112 (`Path.is_dir` raises for folders without permission)


@contextlib.contextmanager
def open_source(source: str | Path) -> Iterator[io.BufferedReader]:
    """Open the decompressed bytes of a file, standard input (``-``) or an address.

    Raises CorpusError for a source that cannot be read and for damaged compressed data (also while the block
    reads), and MissingDependencyError where a package for the compression or the address is missing.
    """
    name, path = display_name(source), Path(source)
    with contextlib.ExitStack() as stack:
        try:
            if str(source) == STDIN:
                raw = cast(io.BufferedReader, sys.stdin.buffer)
            elif is_address(source):
                raw = _stream_of(_of_address(str(source)))
            else:
                raw = cast(io.BufferedReader, stack.enter_context(path.open("rb", _BUFFER_BYTES)))
            suffix, start = path.suffix.lower(), raw.peek(8)[:8]
            if suffix not in _MAGIC.values():
                suffix = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
            stream = raw
            if suffix == ".zip":  # the buffer makes its slow readline fast
                stream = stack.enter_context(io.BufferedReader(_zip_member(raw, name), _BUFFER_BYTES))
            elif suffix:
                stream = _stream_of(_decompressed(raw, _DECOMPRESSORS[suffix]))
            yield _as_utf8(stream, name)
        except (EOFError, zlib.error, zipfile.BadZipFile, OSError) as error:
            if not isinstance(error, OSError) or error.errno is None:  # bz2 reports bad data so
                found = f"them truncated or corrupt ({error}); fetch the file again"
                raise CorpusError(f"{name}: expected whole compressed data, found {found}") from error
            if error.filename not in (None, str(path)):
                raise  # an error with another file, from the body of the block
            hints = {IsADirectoryError: "give a file", PermissionError: "give a file that you may read"}
            hint = hints.get(type(error), "check the path")
            raise CorpusError(f"cannot read {name}: {error.strerror}; {hint}") from error


def _zip_member(raw: io.BufferedReader, name: str) -> io.BufferedIOBase:
    if not raw.seekable():
        raise CorpusError(f"{name}: a zip archive cannot be read from a pipe; unpack it first")
    try:
        archive = zipfile.ZipFile(raw)
        members = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
        for what, begin, kind in KINDS:
            if what == "holds" and any(member.startswith(begin) for member in members):
                raise not_recognized(name, kind)
        members = [m for m in members if not Path(m).name.startswith(".")]
        if len(members) != 1:
            raise CorpusError(f"{name}: expected an archive of one file, found {len(members)}; unpack it")
        return cast(io.BufferedIOBase, archive.open(members[0]))
    except (NotImplementedError, RuntimeError) as error:  # an unknown compression, a password
        raise zipfile.BadZipFile(error) from error


def _decompressed(stream: io.BufferedReader, new: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress member by member: the libraries' own files take a damaged second one for the end."""
    part, data = None, b""
    while data := data or stream.read(_COMPRESSED_BYTES):
        if part is None:
            if not (data := data.lstrip(b"\0")):  # between members
                continue
            part = new()
        try:
            yield part.decompress(data)
        except Exception as error:  # of each library another one
            raise EOFError(error) from error
        data, part = (part.unused_data, None) if part.eof else (b"", part)
    if part is not None:
        raise EOFError("the data end within a member")


def open_address(address: str) -> IO[bytes]:
    """Open a file at an address by fsspec, which raises what it likes; MissingDependencyError without it."""
    try:
        import fsspec

        return cast(IO[bytes], fsspec.open(address, "rb").open())
    except ImportError as error:  # of fsspec, or its message says which package the protocol needs
        lacking = " ".join(str(error).split())
        advice = "install it with pip (fsspec: 'qbe[huggingface]'), or download the file"
        raise MissingDependencyError(f"{address}: {lacking}; {advice}") from error


def _of_address(address: str) -> Iterator[bytes]:
    try:
        with open_address(address) as file:
            yield from iter(partial(file.read, _BUFFER_BYTES), b"")
    except MissingDependencyError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = "check the address, or download it and give the file"
        raise CorpusError(f"cannot read {address}: {reason[:200]}; {advice}") from error


def numbered_lines(stream: io.BufferedReader, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers from 1, line ends kept; a carriage return ends one, too."""
    number = 0
    for line in iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            found = f"at most {MAX_LINE_BYTES >> 20} MiB a line, found more; write one paper a line"
            raise CorpusError(f"{name}, line {number}: expected {found}")
        if line.find(b"\r", 0, -2) < 0:
            yield number, line
        else:
            pieces = _RETURN.split(line)
            yield from enumerate(pieces, number)
            number += len(pieces) - 1


def _as_utf8(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    start = stream.peek(4)[:4]
    if start.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    encoding = next((each for mark, each in _MARKS.items() if start.startswith(mark)), "")

    def utf8() -> Iterator[bytes]:
        try:
            for text in codecs.iterdecode(iter(partial(stream.read1, 1 << 16), b""), encoding):
                yield _XML_ENCODING.sub(rb"\1", text.encode())
        except UnicodeDecodeError as error:
            found = f"{encoding.upper()} text, found other bytes ({error.reason})"
            raise CorpusError(f"{name}: expected {found}; convert the file to UTF-8") from None

    return _stream_of(utf8()) if encoding else stream


def from_western(stream: io.BufferedReader, name: str) -> tuple[io.BufferedReader, bool]:
    """Recode text whose first MiB is not UTF-8: the lines that are not are taken for WESTERN.

    Raises CorpusError for other encodings, in which most letters beyond ASCII stand together.
    """
    head = stream.peek(_BUFFER_BYTES)[:_BUFFER_BYTES]

    def utf8(line: bytes) -> bytes:
        try:
            line.decode()
        except UnicodeDecodeError:
            return line.decode(WESTERN, "replace").encode()
        return line

    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as error:
        lines = [line for line in head.splitlines() if not line.isascii()]
        runs = [run for line in lines for run in _NOT_ASCII.findall(line)]
        together, count = sum(len(run) for run in runs if len(run) > 1), sum(map(len, runs))
        if together > count / 2 and count > _MOST_FLAWS and all(utf8(line) is not line for line in lines):
            where = f"{name}, line {head.count(10, 0, error.start) + 1}"
            found = "an encoding that is not of Western Europe either"
            raise CorpusError(f"{where}: expected UTF-8 text, found {found}; convert the file") from None
        return _stream_of(map(utf8, iter(partial(stream.readline, _BUFFER_BYTES), b""))), True
    return stream, False


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest and (piece := next(self._pieces, None)) is not None:
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _stream_of(pieces: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Pieces(pieces), _BUFFER_BYTES)
