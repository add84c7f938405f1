"""Text in other encodings than UTF-8, as UTF-8, where its encoding can be told."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator

from qbe.errors import CorpusError

BUFFER_BYTES = 1 << 20

WESTERN = "cp1252"
"""The encoding of Windows, with Latin-1 the only one of 8 bits that is read."""

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_XML_ENCODING = re.compile(rb"(<\?xml[^>]{0,100}?)\s+encoding\s*=\s*[\"'][^\"']*[\"']")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_FOREIGN = re.compile(
    r"(?<=[^\W\d_])[À-ÖØ-ÞŒŠŽŸ](?=[a-z])|\b(?![àèéóôåæøµ¹²³ªºÅ])[^\W\d_a-zA-Z]\b"
    r"|(?<=[a-zß-öø-ÿ])(?:[À-ÖØ-ÞŒŠŽŸ](?![A-ZÀ-ÖØ-Þ])|[¹²³](?=[a-z]))|[^\W\d_a-zA-Z]{3}|[þðýÞÐÝ]|[øì]\w{0,8}[áíìòù]"
    r"|(?<=[^\W\d_])[^\w\s\x00-\x7f\u00ad\u00b7\u2013\u2014\u2019](?=[^\W\d_])|[\u0192\u02c6\u02dc\u2020\u2021]"
    r"|(?<=[a-z])(?<!\b[a-z])(?<!\b[Qq]u)\u2019(?=[a-z])(?!(?:s|t|re|ve|ll|d|m)\b)"
)
"""What texts in WESTERN hardly have, and texts in other encodings often when they are read so: capitals or
signs within words, three letters with accents in a row, rare letters and signs.
"""


def as_utf8(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    r"""A stream of UTF-16 or UTF-32, with a byte order mark or without, as UTF-8; any other as it is, without
    the byte order mark of UTF-8.

    Raises CorpusError, also while it is read, where the text is not of that encoding.

    >>> as_utf8(io.BufferedReader(io.BytesIO("{}\n".encode("utf-16-le"))), "papers").read()
    b'{}\n'
    """
    sample = stream.peek(4096)[:4096]
    if sample.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
        return stream
    encoding = next((each for mark, each in _MARKS.items() if sample.startswith(mark)), "")
    encoding = encoding or _utf16_without_mark(sample)
    if not encoding:
        return stream
    decoder = codecs.getincrementaldecoder(encoding)()

    def utf8() -> Iterator[bytes]:
        data = sample
        while data:
            data = stream.read1(1 << 16)
            try:
                text = decoder.decode(data, final=not data).removeprefix("\ufeff").encode()
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{name}: expected {encoding.upper()} text, found other bytes ({error.reason}); convert "
                    "the file to UTF-8"
                ) from None
            yield _XML_ENCODING.sub(rb"\1", text)

    return stream_of(utf8())


def from_western(stream: io.BufferedReader) -> tuple[io.BufferedReader, bool]:
    r"""A stream of text as UTF-8, and whether lines of it are in WESTERN; others stay as they are.

    >>> stream, is_western = from_western(io.BufferedReader(io.BytesIO(b"Kurt G\xf6del\n")))
    >>> stream.read().decode(), is_western
    ('Kurt Gödel\n', True)
    """
    sample = stream.peek(BUFFER_BYTES)[:BUFFER_BYTES]
    lines = sample.splitlines()
    if len(sample) == BUFFER_BYTES:
        lines.pop()  # it may be cut
    try:
        text = b"\n".join(line for line in lines if not _is_utf8(line)).decode(WESTERN)
    except UnicodeDecodeError:
        return stream, False
    if not text or _FOREIGN.search(text):
        return stream, False
    others = iter(lambda: stream.readline(1 << 20), b"")
    utf8 = (line if _is_utf8(line) else line.decode(WESTERN, "replace").encode() for line in others)
    return stream_of(utf8), True


def _utf16_without_mark(sample: bytes) -> str:
    """The encoding of bytes in which every other one is often zero; '' for others."""
    zeros = sample[0::2].count(0), sample[1::2].count(0)
    if max(zeros) <= 8 * min(zeros) or max(zeros) < max(3, len(sample) / 10):
        return ""
    encoding = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return ""
    return "" if _CONTROL.search(text) else encoding


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def stream_of(pieces: Iterator[bytes]) -> io.BufferedReader:
    """A stream of bytes that are given piece by piece.

    >>> stream_of(iter([b"fi", b"", b"sh"])).read()
    b'fish'
    """
    return io.BufferedReader(_Pieces(pieces), BUFFER_BYTES)


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
