"""The lines of text on the pages of a PDF with their place, size and weight.

PDFium's coordinates are points from the lower left corner of a page; here ``y`` runs downwards.
"""

import ctypes
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from qbe.corpus.names import WORDS

MOST_CHARACTERS = 40_000  # of a page; those of papers have some 6,000

_BOLD = re.compile(r"bold|black|heavy|demi|medi\b|cmbx|sfbx|cmssbx|lmbx", re.IGNORECASE)
_TEX = {0x0B: "ff", 0x0C: "fi", 0x0D: "fl", 0x0E: "ffi", 0x0F: "ffl"}  # ligatures of fonts that do not say so
_SPACING = "\u00b4\u00a8\u02c6\u02dc\u00b8\u02c7\u02d8\u02da"
_ACCENTS = dict(zip(_SPACING, "\u0301\u0308\u0302\u0303\u0327\u030c\u0306\u030a", strict=True))
_ACCENTED = re.compile(rf"([{''.join(_ACCENTS)}]) ?([A-Za-z\u0131])")
_HYPHENS = {0xAD, 0x2010, 0x2011, 0xFFFE, 0x02}  # with what PDFium puts for one at the end of a line
_FOOTNOTE_MARKS = frozenset("*\u2020\u2021\u00a7\u00b6\u2217\u22c6\u2225#")
_FIRST_PARTS = WORDS["first parts"]  # a hyphen behind them at the end of a line is mostly theirs


class Line(NamedTuple):
    """Hold characters beside each other, in points; ``plain`` has no marks of footnotes at its end."""

    text: str
    plain: str
    page: int
    x0: float
    x1: float
    y: float
    size: float
    bold: bool


class _Character(NamedTuple):
    text: str
    x0: float
    x1: float
    y: float
    size: float
    bold: bool
    upright: bool
    is_generated: bool


def overlap(line: Line, x0: float, x1: float) -> float:
    """Return how much of a line stands between two edges; the negative distance where nothing does."""
    return min(line.x1, x1) - max(line.x0, x0)


def lines_of(document: Any, pages: int) -> tuple[list[Line], str]:
    """Return the lines of the first pages from top to bottom, and text written upwards (arXiv's stamp)."""
    lines, rotated = list[Line](), list[str]()
    for number in range(min(len(document), pages)):
        page = document[number]
        characters = list(_characters(page.get_textpage(), page.get_height()))
        rotated.append("".join(each.text for each in characters if not each.upright))
        lines += _joined([_line(run, number) for run in _runs(each for each in characters if each.upright)])
    return lines, " ".join(rotated)


def _characters(page: Any, height: float) -> Iterator[_Character]:
    import pypdfium2.raw as pdfium

    raw, styles, style = page.raw, dict[int, tuple[float, bool, bool]](), (0.0, False, True)
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    x, y, high = ctypes.c_double(), ctypes.c_double(), 0xD800
    for place in range(min(pdfium.FPDFText_CountChars(raw), MOST_CHARACTERS)):
        code = pdfium.FPDFText_GetUnicode(raw, place)
        is_generated = pdfium.FPDFText_IsGenerated(raw, place) == 1
        if not is_generated:
            item = ctypes.cast(pdfium.FPDFText_GetTextObject(raw, place), ctypes.c_void_p).value or 0
            if item not in styles:
                styles[item] = _style(pdfium, raw, place)
            style = styles[item]
            pdfium.FPDFText_GetCharOrigin(raw, place, x, y)
            pdfium.FPDFText_GetCharBox(raw, place, left, right, bottom, top)
        if 0xD800 <= code < 0xDC00:  # the first half of a pair of UTF-16, whose place is that of the second
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + code - 0xDC00
        x0, x1 = min(left.value, x.value), max(right.value, x.value)
        yield _Character(_text(code, is_generated), x0, x1, height - y.value, *style, is_generated)


def _text(code: int, is_generated: bool) -> str:
    """Return the letters of a character: those of ligatures and mathematical alphabets as they are typed."""
    if code in _HYPHENS:
        return "-"
    if not 0x20 <= code < 0x110000 or 0xD800 <= code < 0xE000:
        return " " if is_generated else _TEX.get(code, " ")
    is_variant = 0xFB00 <= code <= 0xFB06 or 0x1D400 <= code <= 0x1D7FF
    return unicodedata.normalize("NFKC", chr(code)) if is_variant else chr(code)


def _style(pdfium: Any, raw: Any, place: int) -> tuple[float, bool, bool]:
    """Return size, and True for bold and for upright letters."""
    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFText_GetMatrix(raw, place, matrix)
    size = pdfium.FPDFText_GetFontSize(raw, place) * ((matrix.c**2 + matrix.d**2) ** 0.5 or 1.0)
    name, flags = ctypes.create_string_buffer(200), ctypes.c_int()
    pdfium.FPDFText_GetFontInfo(raw, place, name, 200, flags)
    bold = _BOLD.search(name.value.decode(errors="replace")) is not None
    is_upright = matrix.a > 0 and abs(matrix.b) < matrix.a / 10
    return size, bold or pdfium.FPDFText_GetFontWeight(raw, place) >= 600, is_upright


def _runs(characters: Iterable[_Character]) -> Iterator[list[_Character]]:
    run, last = list[_Character](), None
    for each in characters:
        if each.is_generated or each.text.isspace():
            if run:
                run.append(each)
            continue
        if last is not None:
            size = max(each.size, last.size)
            gap, ratio = each.x0 - last.x1, min(each.size, last.size) / (size or 1.0)
            goes_back = gap < -0.8 * size and each.x0 < last.x0 - 0.1 * size  # not within a ligature
            if goes_back or abs(each.y - last.y) > 0.6 * size or gap > (1.6 if ratio > 0.85 else 0.7) * size:
                yield run
                run = []
        run.append(each)
        last = each
    if run:
        yield run


def _line(run: list[_Character], page: int) -> Line:
    written = [each for each in run if not (each.is_generated or each.text.isspace())]
    sizes = sorted(each.size for each in written)
    size = sizes[len(sizes) // 2]
    baseline = [each.y for each in written if each.size > 0.8 * size] or [written[0].y]
    y = sorted(baseline)[len(baseline) // 2]
    parts, last, end = list[str](), None, 0  # the end of what is no superscript at the end of the line
    for each in run:
        is_space = each.is_generated or each.text.isspace()
        if is_space or (last is not None and each.x0 - last.x1 > 0.25 * size):
            parts.append(" ")
        if is_space:
            continue
        parts.append(each.text)
        is_raised = each.size < 0.8 * size and y - each.y > 0.15 * size
        if not is_raised and each.text not in _FOOTNOTE_MARKS:
            end = len(parts)
        last = each

    def composed(match: re.Match[str]) -> str:
        letter = unicodedata.normalize("NFC", match[2].replace("\u0131", "i") + _ACCENTS[match[1]])
        return letter if len(letter) == 1 else match[0]

    texts = ("".join(each) for each in (parts, parts[:end]))
    text, without = (_ACCENTED.sub(composed, " ".join(each.split())) for each in texts)
    bold = 2 * sum(each.bold for each in written) > len(written)
    x0, x1 = min(each.x0 for each in written), max(each.x1 for each in written)
    return Line(text, without, page, x0, x1, y, size, bold)


def _joined(lines: list[Line]) -> list[Line]:
    """Join parts of lines; remove line numbers at the margin, as in manuscripts under review."""
    done = list[Line]()
    for line in sorted(lines, key=lambda each: (round(each.y), each.x0)):
        for place in range(len(done) - 1, max(-1, len(done) - 8), -1):
            other = done[place]
            size = max(line.size, other.size)
            alike = min(line.size, other.size) > 0.85 * size
            first, second = sorted((other, line), key=lambda each: each.x0)
            gap = second.x0 - first.x1
            if abs(line.y - other.y) < 0.25 * size and -0.3 * size < gap < (0.9 if alike else 0.1) * size:
                space = " " if gap > 0.15 * size else ""
                larger = max(first, second, key=lambda each: len(each.text))
                text, plain = first.text + space + second.text, first.plain + space + second.plain
                x1 = max(first.x1, second.x1)
                done[place] = larger._replace(text=text, plain=plain, x0=first.x0, x1=x1)
                break
        else:
            done.append(line)
    dropped = set[Line]()
    for edge in ("x0", "x1"):
        columns: dict[int, list[Line]] = {}
        for line in done:
            if line.text.isdigit() and len(line.text) <= 4:
                columns.setdefault(round(getattr(line, edge) / 4), []).append(line)
        for column in columns.values():
            values = [int(line.text) for line in sorted(column, key=lambda each: each.y)]
            if len(values) >= 5 and all(a < b for a, b in pairwise(values)):
                dropped.update(column)
    return [line for line in done if line not in dropped]


def joined_text(rows: Sequence[Line], words: Counter[str], *, plain: bool = False) -> str:
    """Return the text of lines, with hyphenated words joined as ``words``, those of the document, tell."""
    text = ""
    for place, row in enumerate(rows, start=1):
        piece = row.plain if plain or place == len(rows) else row.text  # no mark of a footnote at the end
        if not (text.endswith("-") and text[-2:-1].isalnum() and piece[:1].isalnum()):
            text += f" {piece}" if text else piece
            continue
        # The hyphen is one of the word itself where the same word elsewhere has it.
        first, second = re.split(r"[^\w-]", text[-100:-1].lower())[-1], re.split(r"[^\w-]", piece.lower())[0]
        joined, parted = words[first + second], words[f"{first}-{second}"]
        keeps = parted > joined if joined or parted else first in _FIRST_PARTS
        if not (keeps or piece[0].isupper() or piece[0].isdigit() or "-" in first):
            text = text[:-1]
        text += piece
    return " ".join(text.split())
