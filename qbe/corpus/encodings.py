"""Text in other encodings than UTF-8, as UTF-8, where its encoding can be told."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable

from qbe.errors import CorpusError

_SAMPLE_BYTES = 1 << 20
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_XML_ENCODING = re.compile(rb"(<\?xml[^>]{0,100}?)\s+encoding\s*=\s*[\"'][^\"']*[\"']")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")

WESTERN = ("cp1252", "mac_roman")
"""The encodings that are told from each other: of Windows (with Latin-1) first, which is the commoner one."""

_LETTER, _FOREIGN_LETTER = r"[^\W\d_]", r"[^\W\d_a-zA-Z]"
_IMPLAUSIBLE = re.compile(
    rf"(?<={_LETTER})(?!(?:[A-Za-zß-öø-ÿœšž])){_LETTER}(?=[a-z])"  # a capital within a word
    r"|(?<=[a-z])ì(?=[a-z])|[þðýÞÐÝ]|[øì]\w{0,8}[áíìòù]"
    rf"|(?<={_LETTER})[^\w\s\x00-\x7f\u00ad\u00b7\u2013\u2014\u2019](?={_LETTER})"  # a sign within a word
    rf"|(?<={_LETTER})\u2019(?={_LETTER})(?!(?:s|t|re|ve|ll|d|m)\b)(?<!\b[A-Za-z]\u2019)(?<!\b[Qq]u\u2019)"
    rf"|{_FOREIGN_LETTER}{{3}}|\b(?![àèéóôåæø]){_FOREIGN_LETTER}\b"
    r"|[^\w\s\x00-\x7f\u00a0-\u00bf\u00d7\u00f7\u2013-\u201e\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]"
)
"""What Western texts do not have, and another encoding's texts have when they are read as these."""


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

    def utf8(data: bytes) -> bytes:
        try:
            return decoder.decode(data, final=not data).removeprefix("\ufeff").encode()
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{name}: expected {encoding.upper()} text, found other bytes ({error.reason}); convert the "
                "file to UTF-8"
            ) from None

    read: Callable[[], bytes] = lambda: stream.read1(1 << 16)  # noqa: E731
    return _converted(read, lambda data: _XML_ENCODING.sub(rb"\1", utf8(data)))


def from_western(stream: io.BufferedReader) -> tuple[io.BufferedReader, str]:
    r"""A stream of text as UTF-8, and the encoding of WESTERN that those of its lines have that are not; ''
    where there are none, or it cannot be told: such lines stay as they are.

    >>> stream, encoding = from_western(io.BufferedReader(io.BytesIO(b"Kurt G\xf6del\n")))
    >>> stream.read().decode(), encoding
    ('Kurt Gödel\n', 'cp1252')
    """
    sample = stream.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES]
    lines = sample.splitlines()
    if len(sample) == _SAMPLE_BYTES:
        lines.pop()  # it may be cut
    other = b"\n".join(line for line in lines if not (line.isascii() or _is_utf8(line)))
    encoding = next((each for each in WESTERN if other and _is_plausible(other, each)), "")
    if not encoding:
        return stream, ""

    def utf8(line: bytes) -> bytes:
        if line.isascii() or _is_utf8(line):
            return line
        return line.decode(encoding, errors="replace").encode()

    return _converted(lambda: stream.readline(1 << 20), utf8), encoding


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


def _is_plausible(data: bytes, encoding: str) -> bool:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return _IMPLAUSIBLE.search(text) is None


def _converted(read: Callable[[], bytes], convert: Callable[[bytes], bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Converted(read, convert), _SAMPLE_BYTES)


class _Converted(io.RawIOBase):
    """Pieces of a stream, converted one by one."""

    def __init__(self, read: Callable[[], bytes], convert: Callable[[bytes], bytes]) -> None:
        self._read, self._convert = read, convert
        self._output = memoryview(b"")
        self._is_open = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._output and self._is_open:
            data = self._read()
            self._is_open = bool(data)
            self._output = memoryview(self._convert(data))
        count = min(len(buffer), len(self._output))
        buffer[:count] = self._output[:count]
        self._output = self._output[count:]
        return count
