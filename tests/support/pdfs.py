"""PDFs laid out as papers are: words set one by one, as TeX does, in the manner of publishers' templates.

The rules of `qbe.corpus.pdf` were written with the templates of WRITTEN_WITH at hand, and measured on
HELD_OUT, which were made before and not looked at.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from reportlab.lib.pagesizes import A4, LETTER
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

SERIF, BOLD, ITALIC = "Times-Roman", "Times-Bold", "Times-Italic"
SANS, SANS_BOLD = "Helvetica", "Helvetica-Bold"
VERA, VERA_BOLD = "Vera", "VeraBd"
LIGATURES = (("fi", "\ufb01"), ("fl", "\ufb02"))

for font in (VERA, VERA_BOLD):
    pdfmetrics.registerFont(TTFont(font, f"{font}.ttf"))


class Paper(NamedTuple):
    """What is laid out: ``body`` are the paragraphs behind the abstract."""

    title: str
    abstract: str
    body: Sequence[str]
    number: int = 0


class Column(NamedTuple):
    x: float
    width: float
    top: float
    bottom: float


class Sheet:
    """A document; ``y`` runs downwards from the top of its page."""

    def __init__(self, size: tuple[float, float] = LETTER, title: str = "") -> None:
        self.file = io.BytesIO()
        self.width, self.height = size
        self.canvas = Canvas(self.file, pagesize=size, pageCompression=1)
        self.canvas.setTitle(title)

    def data(self) -> bytes:
        self.canvas.save()
        return self.file.getvalue()

    def word(self, x: float, y: float, text: str, font: str, size: float) -> None:
        if font in (VERA, VERA_BOLD):
            for letters, ligature in LIGATURES:
                text = text.replace(letters, ligature)
        self.canvas.setFont(font, size)
        self.canvas.drawString(x, self.height - y, text)

    def line(self, x: float, y: float, text: str, font: str, size: float, gap: float | None = None) -> float:
        """Words with a gap between them; returns where the line ends."""
        gap = pdfmetrics.stringWidth(" ", font, size) if gap is None else gap
        for word in text.split():
            self.word(x, y, word, font, size)
            x += pdfmetrics.stringWidth(word, font, size) + gap
        return x - gap

    def centered(self, y: float, text: str, font: str, size: float, width: float | None = None) -> float:
        """Lines in the middle of the page; returns where the next one would be."""
        for words in broken(text.split(), width or 0.75 * self.width, font, size):
            line = " ".join(words)
            self.line((self.width - pdfmetrics.stringWidth(line, font, size)) / 2, y, line, font, size)
            y += 1.2 * size
        return y

    def title(
        self, x: float, y: float, text: str, font: str, size: float, width: float, leading: float
    ) -> float:
        """Lines from the left; returns where the next one would be."""
        for words in broken(text.split(), width, font, size):
            self.line(x, y, " ".join(words), font, size)
            y += leading
        return y

    def flow(
        self,
        text: str,
        columns: Sequence[Column],
        font: str,
        size: float,
        *,
        y: float | None = None,
        begin: float = 0.0,
        indent: float = 0.0,
        leading: float = 1.2,
        numbered: bool = False,
    ) -> tuple[int, float]:
        """A justified paragraph, through columns; returns the place of its last column, and where the next
        line would be. The first line begins ``begin`` behind the edge, where its heading ends.
        """
        place, y = 0, columns[0].top if y is None else y
        offset = begin or indent
        words = text.split()
        while words:
            column = columns[place]
            if y > column.bottom:
                place += 1
                y = columns[place].top
                continue
            line, words = first_line(words, column.width - offset, font, size)
            widths = sum(pdfmetrics.stringWidth(word, font, size) for word in line)
            space = pdfmetrics.stringWidth(" ", font, size)
            fits = (column.width - offset - widths) / max(1, len(line) - 1) if words else space
            self.line(column.x + offset, y, " ".join(line), font, size, fits)
            if numbered:
                self.line(column.x - 28, y, str(int(y / (leading * size))), SANS, 6)
            offset, y = 0.0, y + leading * size
        return place, y


def first_line(words: list[str], width: float, font: str, size: float) -> tuple[list[str], list[str]]:
    """The first line of some words, and the others; a long word may be hyphenated."""
    space = pdfmetrics.stringWidth(" ", font, size)
    line, used = list[str](), 0.0
    for place, word in enumerate(words):
        length = pdfmetrics.stringWidth(word, font, size)
        if used + length <= width or not line:
            line.append(word)
            used += length + space
            continue
        if len(word) > 7 and word.isalpha():
            for cut in range(len(word) - 3, 2, -1):
                if used + pdfmetrics.stringWidth(f"{word[:cut]}-", font, size) <= width:
                    return [*line, f"{word[:cut]}-"], [word[cut:], *words[place + 1 :]]
        return line, words[place:]
    return line, []


def broken(words: list[str], width: float, font: str, size: float) -> Iterator[list[str]]:
    """The lines of some words, none of them hyphenated."""
    while words:
        count = len(words)
        while count > 1 and pdfmetrics.stringWidth(" ".join(words[:count]), font, size) > width:
            count -= 1
        yield words[:count]
        words = words[count:]


def two(sheet: Sheet, top: float, *, margin: float = 54, gutter: float = 18) -> list[Column]:
    width = (sheet.width - 2 * margin - gutter) / 2
    return [Column(x, width, top, sheet.height - 72) for x in (margin, margin + width + gutter)]


def footnote(sheet: Sheet, columns: Sequence[Column], text: str) -> None:
    """A paragraph below the first column."""
    sheet.flow(text, [columns[0]._replace(bottom=columns[0].bottom + 60)], SERIF, 8, y=sheet.height - 60)


def body(
    sheet: Sheet, columns: Sequence[Column], paper: Paper, y: float, font: str, size: float, heading: str
) -> None:
    """The introduction: a heading, and paragraphs until the page ends."""
    bold = {VERA: VERA_BOLD, SANS: SANS_BOLD}.get(font, BOLD)
    if y + 40 > columns[0].bottom:
        columns, y = columns[1:], columns[1].top if len(columns) > 1 else y
    if not columns:
        return
    sheet.line(columns[0].x, y + 14, heading, bold, size + 2)
    y, place = y + 18 + 1.2 * size, 0
    for number, text in enumerate(paper.body):
        try:
            moved, y = sheet.flow(text, columns[place:], font, size, y=y, indent=12 if number else 0)
        except IndexError:  # the page is full
            return
        place += moved


def acm(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(80, paper.title, SANS_BOLD, 17.2)
    sheet.line(100, y + 12, "Ann Lee", SANS, 12), sheet.line(380, y + 12, "Bo van der Berg", SANS, 12)
    sheet.line(100, y + 26, "University of the North", SANS, 10)
    sheet.line(380, y + 26, "Institute of Lakes", SANS, 10)
    columns = two(sheet, y + 60, gutter=24)
    sheet.line(columns[0].x, y + 60, "ABSTRACT", SANS_BOLD, 10.9)
    place, end = sheet.flow(paper.abstract, columns, SERIF, 9, y=y + 74)
    sheet.line(columns[place].x, end + 12, "CCS CONCEPTS", SANS_BOLD, 10.9)
    concepts = "Information systems: Retrieval models and ranking."
    _, end = sheet.flow(concepts, columns[place:], SERIF, 9, y=end + 26)
    permission = "Permission to make digital or hard copies of all or part of this"
    sheet.line(columns[place].x, sheet.height - 50, permission, SERIF, 7)
    body(sheet, columns[place:], paper, end, SERIF, 9, "1 INTRODUCTION")


def ieee(sheet: Sheet, paper: Paper) -> None:
    sheet.line(54, 30, "IEEE TRANSACTIONS ON EXAMPLES, VOL. 7, NO. 3, MARCH 2021", SERIF, 7)
    sheet.line(550, 30, "1", SERIF, 7)
    y = sheet.centered(70, paper.title, SERIF, 23.9)
    y = sheet.centered(y + 4, "Ann Lee, Member, IEEE, and Bo van der Berg", SERIF, 11)
    columns = two(sheet, y + 20, gutter=12, margin=49)
    begin = sheet.line(columns[0].x + 9, y + 20, "Abstract\u2014", "Times-BoldItalic", 9) - columns[0].x
    place, end = sheet.flow(paper.abstract, columns, BOLD, 9, begin=begin)
    x, terms = columns[place].x, "Retrieval, fish, lakes and rivers of the north."
    begin = sheet.line(x + 9, end + 5, "Index Terms\u2014", "Times-BoldItalic", 9) - x
    _, end = sheet.flow(terms, columns[place:], BOLD, 9, y=end + 5, begin=begin)
    footnote(sheet, columns, "Ann Lee is with the University of the North (e-mail: ann@example.org).")
    body(sheet, columns[place:], paper, end, SERIF, 10, "I. INTRODUCTION")


def acl(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(80, paper.title, BOLD, 14.3)
    sheet.word(0.87 * sheet.width, 76, "\u2217".encode("latin-1", "ignore").decode() or "*", SERIF, 9)
    y = sheet.centered(y + 10, "Ann Lee and Bo van der Berg", BOLD, 12)
    y = sheet.centered(y, "University of the North", SERIF, 12)
    columns = two(sheet, y + 30, margin=71, gutter=17)
    sheet.line(columns[0].x + columns[0].width / 2 - 22, y + 30, "Abstract", BOLD, 12)
    inner = [column._replace(x=column.x + 17, width=column.width - 34) for column in columns]
    _, end = sheet.flow(paper.abstract, inner, SERIF, 10, y=y + 48)
    footnote(sheet, columns, "Equal contribution. Code is at example.org.")
    for number in range(40):  # the ruler of a version for review
        sheet.line(20, 80 + 15 * number, f"{number:03}", SERIF, 7)
        sheet.line(sheet.width - 32, 80 + 15 * number, f"{number + 40:03}", SERIF, 7)
    body(sheet, columns, paper, end, SERIF, 11, "1 Introduction")


def neurips(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(110, paper.title, BOLD, 17.2)
    sheet.line(150, y + 20, "Ann Lee", BOLD, 10), sheet.line(380, y + 20, "Bo van der Berg", BOLD, 10)
    sheet.line(150, y + 31, "University of the North", SERIF, 10)
    sheet.line(380, y + 31, "Institute of Lakes", SERIF, 10)
    y = sheet.centered(y + 70, "Abstract", BOLD, 12)
    _, y = sheet.flow(paper.abstract, [Column(144, 324, y, 700)], SERIF, 10, y=y + 6, leading=1.1)
    body(sheet, [Column(108, 396, y, 690)], paper, y + 10, SERIF, 10, "1 Introduction")
    sheet.line(108, 740, "35th Conference on Neural Examples (2021), Sydney, Australia.", SERIF, 9)


def lncs(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(60, paper.title, BOLD, 14.3)
    y = sheet.centered(y + 10, "Ann Lee1 and Bo van der Berg2", SERIF, 10)
    y = sheet.centered(y + 4, "University of the North, Lake Street 7, 1234 North", SERIF, 9)
    inner = [Column(75, 289, y + 24, 600)]
    begin = sheet.line(75, y + 24, "Abstract.", BOLD, 9) - 75 + 4
    _, y = sheet.flow(paper.abstract, inner, SERIF, 9, begin=begin)
    sheet.line(75, y + 10, "Keywords: Retrieval . Fish . Lakes", SERIF, 9)
    body(sheet, [Column(46, 347, y, 600)], paper, y + 20, SERIF, 10, "1 Introduction")


def article(sheet: Sheet, paper: Paper) -> None:
    canvas = sheet.canvas
    canvas.saveState()
    canvas.translate(30, 250)
    canvas.rotate(90)
    canvas.setFont(SERIF, 20)
    canvas.drawString(0, 0, f"arXiv:2101.{10000 + paper.number:05}v2 [cs.IR] 7 Jan 2021")
    canvas.restoreState()
    y = sheet.centered(120, paper.title, VERA, 17.2)
    y = sheet.centered(y + 12, "Ann Lee, Bo van der Berg", VERA, 12)
    y = sheet.centered(y + 10, "January 7, 2021", VERA, 12)
    y = sheet.centered(y + 20, "Abstract", VERA_BOLD, 9)
    _, y = sheet.flow(paper.abstract, [Column(160, 292, y, 760)], VERA, 8, y=y + 4)
    body(sheet, [Column(134, 345, y, 690)], paper, y + 6, VERA, 9, "1 Introduction")
    sheet.line(303, 760, "1", VERA, 9)


def revtex(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(70, paper.title, BOLD, 12, 400)
    y = sheet.centered(y + 8, "Ann Lee,1 Bo van der Berg,2 and Chris Oak1", SERIF, 10)
    y = sheet.centered(y, "1 Department of Lakes, University of the North, 1234 North, Norway", ITALIC, 9)
    y = sheet.centered(y, "(Dated: January 7, 2021)", SERIF, 9)
    _, y = sheet.flow(paper.abstract, [Column(108, 396, y, 700)], SERIF, 9, y=y + 10, indent=10)
    body(sheet, two(sheet, y + 20), paper, y + 20, SERIF, 10, "I. INTRODUCTION")


def without_abstract(sheet: Sheet, paper: Paper) -> None:
    """A report that begins with its introduction."""
    y = sheet.centered(90, paper.title, BOLD, 16)
    y = sheet.centered(y + 10, "Ann Lee", SERIF, 11)
    body(sheet, [Column(80, 435, y, 750)], paper, y + 10, SERIF, 11, "1. Introduction")


def elsevier(sheet: Sheet, paper: Paper) -> None:
    sheet.centered(60, "Contents lists available at ScienceDirect", SERIF, 9)
    sheet.centered(85, "Journal of Lakes and Rivers", SERIF, 14)
    sheet.centered(105, "journal homepage: www.example.org/jlr", SERIF, 8)
    y = sheet.title(37, 150, paper.title, SERIF, 13.5, 480, 17)
    sheet.line(37, y + 8, "Ann Lee a, Bo van der Berg b,*", SERIF, 10.5)
    sheet.line(37, y + 24, "a University of the North, Lake Street 7, Norway", ITALIC, 6.5)
    y += 60
    sheet.line(37, y, "A R T I C L E I N F O", SERIF, 8), sheet.line(203, y, "A B S T R A C T", SERIF, 8)
    for number, text in enumerate(
        ("Article history:", "Received 7 January 2020", "Accepted 3 March 2020", "Keywords:", "Fish", "Lakes")
    ):
        sheet.line(37, y + 18 + 10 * number, text, ITALIC, 6.5)
    _, end = sheet.flow(paper.abstract, [Column(203, 355, y, 760)], SERIF, 7.5, y=y + 18, leading=1.3)
    body(sheet, two(sheet, end + 30, margin=37), paper, max(end, y + 90) + 20, SERIF, 8, "1. Introduction")


def iclr(sheet: Sheet, paper: Paper) -> None:
    sheet.line(108, 36, "Published as a conference paper at ICLR 2021", SERIF, 10)
    y = 90.0
    for words in broken(paper.title.upper().split(), 330, SERIF, 17.2):
        x = 108.0
        for word in words:
            sheet.word(x, y, word[0], SERIF, 17.2)
            x += pdfmetrics.stringWidth(word[0], SERIF, 17.2)
            sheet.word(x, y, word[1:], SERIF, 13.8)
            x += pdfmetrics.stringWidth(word[1:], SERIF, 13.8) + 5
        y += 20
    sheet.line(112, y + 10, "Ann Lee & Bo van der Berg", BOLD, 10)
    y = sheet.centered(y + 60, "ABSTRACT", SERIF, 12)
    _, y = sheet.flow(paper.abstract, [Column(144, 324, y, 720)], SERIF, 10, y=y + 6, leading=1.1)
    body(sheet, [Column(108, 396, y, 700)], paper, y + 10, SERIF, 10, "1 INTRODUCTION")


def springer(sheet: Sheet, paper: Paper) -> None:
    sheet.line(51, 40, "Lakes (2020) 12:345-360", SANS, 8)
    sheet.line(51, 52, f"https://doi.org/10.1007/s00000-020-0{paper.number:04}", SANS, 8)
    sheet.line(51, 100, "ORIGINAL ARTICLE", SANS_BOLD, 10)
    y = sheet.title(51, 130, paper.title, SANS_BOLD, 16, 440, 20)
    sheet.line(51, y + 8, "Ann Lee . Bo van der Berg", BOLD, 11)
    sheet.line(51, y + 30, "Received: 7 January 2020 / Accepted: 3 March 2020", SERIF, 8)
    columns = two(sheet, y + 60, margin=51)
    begin = sheet.line(51, y + 60, "Abstract", BOLD, 10) - 51 + 8
    place, end = sheet.flow(paper.abstract, columns, SERIF, 10, begin=begin)
    sheet.line(columns[place].x, end + 12, "Keywords Fish . Lakes . Rivers", SERIF, 10)
    footnote(sheet, columns, "A. Lee University of the North, Lake Street 7 e-mail: ann@example.org")
    body(sheet, columns[place:], paper, end + 20, SERIF, 10, "1 Introduction")


def manuscript(sheet: Sheet, paper: Paper) -> None:
    """A manuscript under review: lines far apart and numbered, a summary."""
    y = sheet.title(72, 80, paper.title, BOLD, 14, 440, 24)
    sheet.line(72, y + 10, "Ann Lee, Bo van der Berg", SERIF, 12)
    sheet.line(72, y + 50, "Summary", BOLD, 12)
    columns = [Column(72, 450, 72, 740)]
    sheet.flow(paper.abstract, columns, SERIF, 11, y=y + 74, leading=1.6, numbered=True)
    sheet.canvas.showPage()
    sheet.line(72, 80, "Introduction", BOLD, 12)
    sheet.flow(" ".join(paper.body)[:1800], columns, SERIF, 11, y=104, leading=1.6, numbered=True)


def cover(sheet: Sheet, paper: Paper) -> None:
    """A report with its abstract alone on the first page."""
    sheet.line(400, 60, "LAKE-TR-2020-07", SERIF, 10)
    y = sheet.centered(180, paper.title, BOLD, 18)
    y = sheet.centered(y + 20, "Ann Lee and Bo van der Berg", SERIF, 14)
    y = sheet.centered(y, "Institute of Lakes", ITALIC, 12)
    y = sheet.centered(y + 40, "Abstract", BOLD, 12)
    sheet.flow(paper.abstract, [Column(90, 415, y, 760)], SERIF, 11, y=y + 8)
    sheet.centered(790, "Submitted to the Journal of Lakes", SERIF, 9)
    sheet.canvas.showPage()
    sheet.line(72, 80, "1 Introduction", BOLD, 14)
    sheet.flow(" ".join(paper.body)[:3000], [Column(72, 450, 72, 760)], SERIF, 11, y=104)


def split_columns(sheet: Sheet, paper: Paper) -> None:
    """An abstract that goes on at the top of the second column."""
    y = sheet.centered(70, paper.title, BOLD, 16)
    y = sheet.centered(y + 10, "Ann Lee and Bo van der Berg", SERIF, 12)
    columns = two(sheet, y + 30)
    columns = [column._replace(bottom=y + 130) for column in columns[:1]] + columns[1:]
    sheet.line(columns[0].x, y + 30, "Abstract", BOLD, 12)
    place, end = sheet.flow(paper.abstract, columns, SERIF, 10, y=y + 46)
    body(sheet, columns[place:], paper, end + 10, SERIF, 10, "1 Introduction")


def nature(sheet: Sheet, paper: Paper) -> None:
    """A letter whose abstract is bold and has no heading."""
    sheet.line(40, 40, "LETTERS", SANS_BOLD, 10)
    y = sheet.title(40, 90, paper.title, SANS_BOLD, 20, 500, 24)
    sheet.line(40, y + 6, "Ann Lee1, Bo van der Berg2", SANS, 10)
    columns = two(sheet, y + 30, margin=40, gutter=14)
    place, end = sheet.flow(paper.abstract, columns, BOLD, 9)
    for text in paper.body:
        try:
            moved, end = sheet.flow(text, columns[place:], SERIF, 9, y=end, indent=10)
        except IndexError:
            break
        place += moved


def structured(sheet: Sheet, paper: Paper) -> None:
    """A paper of medicine: a large heading, and paragraphs with headings of their own."""
    sheet.line(200, 50, "RESEARCH ARTICLE", SANS_BOLD, 9)
    y = sheet.title(200, 80, paper.title, SANS_BOLD, 18, 370, 22)
    sheet.line(200, y + 8, "Ann Lee1, Bo van der Berg2", SANS, 10)
    sheet.line(200, y + 40, "Abstract", SANS_BOLD, 14)
    words, y, columns = paper.abstract.split(), y + 62, [Column(200, 375, 72, 760)]
    for number in range(3):
        part = words[number * len(words) // 3 : (number + 1) * len(words) // 3]
        _, y = sheet.flow(" ".join(part), columns, SERIF, 10, y=y)
        y += 5
    sheet.canvas.showPage()
    sheet.line(200, 80, "Introduction", SANS_BOLD, 14)
    sheet.flow(" ".join(paper.body)[:2000], columns, SERIF, 10, y=104)


def usenix(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(90, paper.title, BOLD, 14.3)
    y = sheet.centered(y + 10, "Ann Lee Bo van der Berg Chris Oak", SERIF, 12)
    y = sheet.centered(y, "University of the North", ITALIC, 12)
    columns = two(sheet, y + 30, gutter=24)
    width = pdfmetrics.stringWidth("Abstract", ITALIC, 12)
    sheet.line(columns[0].x + (columns[0].width - width) / 2, y + 30, "Abstract", ITALIC, 12)
    place, end = sheet.flow(paper.abstract, columns, SERIF, 10, y=y + 48, indent=10)
    body(sheet, columns[place:], paper, end + 8, SERIF, 10, "1 Introduction")


def mdpi(sheet: Sheet, paper: Paper) -> None:
    sheet.line(36, 50, "lakes", SANS_BOLD, 22)
    sheet.line(36, 90, "Article", ITALIC, 10)
    y = sheet.title(36, 112, paper.title, BOLD, 18, 520, 21)
    sheet.line(36, y + 8, "Ann Lee 1,* and Bo van der Berg 2", BOLD, 10)
    sheet.line(166, y + 34, "1 University of the North, Lake Street 7; ann@example.org", SERIF, 8)
    aside = ["Citation: Lee, A. Lakes 2021,", "12, 345. https://doi.org/", "Received: 7 January 2021"]
    for number, text in enumerate([*aside, "Accepted: 3 March 2021", "Publisher's Note: stays neutral"]):
        sheet.line(36, y + 60 + 12 * number, text, SERIF, 7)
    begin = sheet.line(166, y + 60, "Abstract:", BOLD, 9) - 166 + 3
    columns = [Column(166, 393, 72, 760)]
    _, end = sheet.flow(paper.abstract, columns, SERIF, 9, y=y + 60, begin=begin, leading=1.3)
    sheet.line(166, end + 10, "Keywords: fish; lakes; rivers", SERIF, 9)
    body(sheet, [Column(166, 393, 72, 740)], paper, end + 30, SERIF, 10, "1. Introduction")


def aaai(sheet: Sheet, paper: Paper) -> None:
    y = sheet.centered(75, paper.title, BOLD, 16)
    y = sheet.centered(y + 8, "Ann Lee,1 Bo van der Berg2", BOLD, 12)
    y = sheet.centered(y, "1University of the North, 2Institute of Lakes", SERIF, 9)
    columns = two(sheet, y + 40, gutter=27)
    inner = [column._replace(x=column.x + 10, width=column.width - 20) for column in columns]
    width = pdfmetrics.stringWidth("Abstract", BOLD, 10)
    sheet.line(columns[0].x + (columns[0].width - width) / 2, y + 40, "Abstract", BOLD, 10)
    _, end = sheet.flow(paper.abstract, inner, SERIF, 9, y=y + 54, indent=10)
    sheet.line(columns[0].x + 70, end + 20, "Introduction", BOLD, 12)
    sheet.flow(" ".join(paper.body)[:1500], columns, SERIF, 10, y=end + 36)
    sheet.line(columns[0].x, 750, "Copyright c 2021, Association of Examples. All rights reserved.", SERIF, 8)


def jmlr(sheet: Sheet, paper: Paper) -> None:
    sheet.line(90, 50, "Journal of Machine Learning Examples 22 (2021) 1-30", SERIF, 8)
    sheet.line(380, 50, "Submitted 1/21; Published 3/21", SERIF, 8)
    y = sheet.centered(110, paper.title, BOLD, 14.3)
    for number, name in enumerate(("Ann Lee", "Bo van der Berg")):
        sheet.line(90, y + 20 + 26 * number, name, BOLD, 11)
        sheet.line(420, y + 20 + 26 * number, "mail@example.org", SERIF, 9)
        sheet.line(90, y + 31 + 26 * number, "University of the North", ITALIC, 10)
    sheet.line(90, y + 90, "Editor: Chris Oak", BOLD, 10)
    y = sheet.centered(y + 120, "Abstract", BOLD, 11)
    _, y = sheet.flow(paper.abstract, [Column(110, 392, 72, 740)], SERIF, 10, y=y + 4)
    sheet.line(110, y + 4, "Keywords: fish, lakes, rivers", SERIF, 10)
    body(sheet, [Column(90, 432, 72, 720)], paper, y + 20, SERIF, 11, "1. Introduction")


def optica(sheet: Sheet, paper: Paper) -> None:
    y = sheet.title(80, 90, paper.title, SANS_BOLD, 18, 430, 24)
    sheet.line(80, y + 10, "ANN LEE1,* AND BO VAN DER BERG2", SANS_BOLD, 11)
    sheet.line(80, y + 28, "1University of the North, Lake Street 7, Norway", ITALIC, 9)
    begin = sheet.line(80, y + 60, "Abstract:", SANS_BOLD, 10) - 80 + 6
    columns = [Column(80, 450, 72, 740)]
    _, y = sheet.flow(paper.abstract, columns, SANS, 10, y=y + 60, begin=begin, leading=1.25)
    sheet.line(80, y + 10, "\u00a9 2021 Society of Examples under the terms of an agreement", SANS, 9)
    body(sheet, [Column(80, 450, 72, 720)], paper, y + 30, SERIF, 10, "1. Introduction")


Template = Callable[[Sheet, Paper], None]
SIZES: dict[Template, tuple[float, float]] = {
    **dict.fromkeys((acl, without_abstract, manuscript, cover, mdpi), A4),
    lncs: (439, 666),
    elsevier: (595, 794),
    springer: (595, 791),
    nature: (595, 791),
}


def laid_out(template: Template, paper: Paper) -> bytes:
    """The PDF of a paper; some programs write a title into it that is wrong."""
    written = paper.title if paper.number % 2 else "Microsoft Word - final_v3.docx"
    titles = {ieee: "untitled", article: written}
    sheet = Sheet(SIZES.get(template, LETTER), titles.get(template, ""))
    template(sheet, paper)
    return sheet.data()


WRITTEN_WITH: tuple[Template, ...] = (
    *(acm, ieee, acl, neurips, lncs, article, revtex, split_columns, nature, structured),
    without_abstract,
)
HELD_OUT = (elsevier, iclr, springer, manuscript, cover, usenix, mdpi, aaai, jmlr, optica)
