"""PDFs: one paper a file, whose title and abstract are found in the lines of its pages by a child process.

What is hostile or damaged in a document can end that process, and nothing else. It reads documents from its
standard input, each after its length in eight bytes, and answers each with a line of JSON: ``title``,
``abstract``, ``abstract_from``, ``arxiv`` and ``doi``, or ``error``.
"""

import atexit
import io
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from qbe.corpus import fields
from qbe.corpus.names import alternatives
from qbe.corpus.pdf_lines import Line, joined_text, lines_of, overlap
from qbe.corpus.records import Entry, Reading
from qbe.corpus.sentences import HEADINGS
from qbe.corpus.streams import MAX_LINE_BYTES
from qbe.errors import RecordError, check_package
from qbe.util import work

FEWEST_WORDS, MOST_WORDS = 30, 700  # of a paragraph that may be an abstract; where reading of one ends

# What ends an abstract; what footnotes and notes on authors have, and abstracts have not; names of journals.
_END, _NO_PROSE, _JOURNAL, _COVER = (  # the last: what stands on sheets of libraries before a paper
    re.compile(alternatives(name), re.IGNORECASE) for name in ("end", "no prose", "journal", "cover")
)
_OF_SECTION = re.compile(r"[^.:\u2013\u2014]{3,40}")
_ABSTRACT = re.compile(alternatives("abstract"), re.IGNORECASE)
_INTRODUCTION = re.compile(alternatives("first heading"), re.IGNORECASE)
_SECTION = re.compile(r"(?:\d{1,2}|[IVX]{1,4})[.)]?\s+[A-Z][^.]{2,60}")
_MARKS = re.compile(alternatives("marks"))
_LIST_MARK = re.compile(r"^[^\w\"'\u2018\u201c($]+")


def find(lines: Sequence[Line], named: str) -> dict[str, str]:
    """Find title and abstract in the lines of first pages; ``named`` is the document's own title.

    Each is '' where there is none. An abstract stands under its heading, or as a paragraph without one before
    the introduction; else ``abstract_from`` says what stands for it.
    """
    # The words of the document, hyphens kept, those at the ends of lines left out, which may be parts.
    words = Counter(word for line in lines for word in re.findall(r"[\w-]+", line.text.lower())[1:-1])
    heading, rest = _heading(lines)
    title, last = _title(lines, words, heading, named)
    rows, stands_in = _under(lines, heading, rest) if heading else [], ""
    if not rows:
        below = [line for line in lines if last is None or (line.page, line.y) > (last.page, last.y)]
        intro = next((line for line in below if _INTRODUCTION.fullmatch(line.text)), None)
        rows, stands_in = _block(below, intro), "" if intro else "its first paragraph"
        if not rows and intro:
            begins = _beginning(lines, intro, 6, 15)
            begin = min(begins, key=lambda each: (each.y, each.x0), default=None)
            rows = [] if begin is None else _grown(lines, begin, one_paragraph=True)
            stands_in = fields.INTRODUCTION
    abstract = _LIST_MARK.sub("", joined_text(rows, words))
    return {"title": title, "abstract": abstract, fields.ABSTRACT_FROM: stands_in if abstract else ""}


def _is_heading(text: str) -> bool:
    match = _OF_SECTION.match(text)
    words = re.findall(r"[a-z]+", match[0].lower()) if match else []
    return 0 < len(words) < 6 and text[:1].isupper() and HEADINGS.issuperset(words)


def _heading(lines: Sequence[Line]) -> tuple[Line | None, str]:
    found = list[tuple[bool, Line, str]]()
    for line in lines:
        if (match := _ABSTRACT.fullmatch(line.text)) is None:
            continue
        rest, mark = match["rest"], match["mark"]
        is_named = match["name"].lower().replace(" ", "") == "abstract"
        is_marked = mark and re.match(r"[\W\d]*[A-Z\d]", rest)  # "Abstract: We", and not "abstract, we"
        begins = is_named and not mark and re.match(r"[A-Z][\w-]*[ ,]", rest)  # "Abstract We"
        if rest and not is_marked and not (begins and line.size <= 1.25 * body_size(lines)):
            continue
        found.append((is_named, line, rest))
    best = max(found, key=lambda each: (each[0], -each[1].page, -each[1].y), default=None)
    return (None, "") if best is None else best[1:]


def _under(lines: Sequence[Line], heading: Line, rest: str) -> list[Line]:
    begin = heading._replace(text=rest) if rest else None
    if begin is None:
        right = (line for line in lines if line.page == heading.page and 0 < line.x0 - heading.x1 < 120)
        beside = [each for each in right if abs(each.y - heading.y) < 0.4 * each.size and len(each.text) > 25]
        below = _beginning(lines, heading, 7, 8)
        close = [line for line in below if line.y - heading.y < 3 * line.size]
        begin = min(close or beside or below, key=lambda each: (each.y, each.x0), default=None)
        if begin is None or _ends(begin, begin):
            return []
    rows = _grown([line for line in lines if line is not heading], begin)
    for place, text in enumerate([row.text for row in rows]):
        if len(text) < 40 and text[-1].isalpha() and _is_heading(text):
            rows[place] = rows[place]._replace(text=f"{text}:")
    return rows


def _beginning(lines: Sequence[Line], heading: Line, most: float, letters: int) -> list[Line]:
    return [
        line
        for line in lines
        if line.page == heading.page
        and 0.4 * line.size < line.y - heading.y < most * line.size
        and overlap(line, heading.x0 - 20, heading.x1 + 20) > 0
        and (len(line.text) > letters or _is_heading(line.text))
    ]


def _grown(lines: Sequence[Line], begin: Line, *, one_paragraph: bool = False) -> list[Line]:
    rows, words = [begin], len(begin.text.split())
    x0, x1, leading, last = begin.x0, begin.x1, 0.0, begin
    used, style = {begin}, begin  # the latter has the size and weight of the text
    while words < MOST_WORDS:
        row = _row_below(lines, last, x0, x1, leading, used)
        if not row and leading and _is_heading(begin.text):  # blank lines may stand between sections
            wider = _row_below(lines, last, x0, x1, 1.8 * leading, used)
            row = wider if wider and _is_heading(wider[0].text) else []
        if not row and not one_paragraph:
            row = _row_of_next_column(lines, last, x0, x1, begin, used)
            if row:
                x0, x1 = row[0].x0, row[-1].x1
        if row and _is_heading(style.text) and style.text[-1:].isalpha():
            style = row[0]
        if not row or _ends(row[0], style):
            break
        first, is_same_page = row[0], row[0].page == last.page
        if one_paragraph and len(rows) > 1 and words >= FEWEST_WORDS:
            is_lower = leading and is_same_page and first.y - last.y > 1.3 * leading
            if is_lower or 0.7 * first.size < first.x0 - x0 < 4 * first.size:
                break
        if is_same_page and first.y > last.y and (not leading or len(rows) < 4):
            leading = max(leading, row[0].y - last.y) if leading else row[0].y - last.y
        used.update(row)
        rows += row
        words += sum(len(each.text.split()) for each in row)
        x0, x1, last = min(x0, row[0].x0), max(x1, row[-1].x1), row[0]
    return rows


def _row_below(
    lines: Sequence[Line], last: Line, x0: float, x1: float, leading: float, used: set[Line]
) -> list[Line]:
    most = 1.75 * leading if leading else 2.2 * last.size
    slack = (2.5 if leading else 4.5) * last.size  # the first line may be indented
    near = [
        line
        for line in lines
        if line.page == last.page
        and line not in used
        and 0.5 * last.size < line.y - last.y <= most
        and line.x0 > x0 - slack
        and overlap(line, x0, x1) > 0.5 * min(line.x1 - line.x0, x1 - x0)
    ]
    first = min((line for line in near if line.size > 0.8 * last.size), key=lambda each: each.y, default=None)
    row = [each for each in near if first and abs(each.y - first.y) < 0.4 * first.size]
    return sorted(row, key=lambda each: each.x0)


def _row_of_next_column(
    lines: Sequence[Line], last: Line, x0: float, x1: float, begin: Line, used: set[Line]
) -> list[Line]:
    alike = [line for line in lines if line.size > 0.92 * begin.size and line not in used]
    here = [line for line in alike if line.page == last.page]
    if any(line.y > last.y and overlap(line, x0, x1) > 0 and len(line.text) > 20 for line in here):
        return []
    right = [line for line in here if line.x0 > x1 and len(line.text) > 3]
    if right:
        return [min(right, key=lambda each: each.y)]
    if re.search(r"[.!?)\u201d]$", last.text):
        return []
    following = [line for line in alike if line.page == last.page + 1 and len(line.text) > 20]
    return sorted(following, key=lambda each: (each.y, each.x0))[:1]


def _ends(line: Line, begin: Line) -> bool:
    is_capital = not line.text[:1].islower() or line.bold > begin.bold or line.text.startswith("http")
    if is_capital and (_END.match(line.text) or _INTRODUCTION.fullmatch(line.text)):
        return True
    if line.size > 1.1 * begin.size or (line.size < 0.88 * begin.size and len(line.text) > 12):
        return True
    if _is_heading(line.text):
        return False
    if begin.bold and not line.bold and len(line.text) > 25:
        return True
    is_marked = line.bold > begin.bold or line.text.isupper()
    return line is not begin and is_marked and _SECTION.fullmatch(line.text) is not None


def _block(lines: Sequence[Line], intro: Line | None) -> list[Line]:
    others = [line for line in lines if line is not intro]
    for begin in others:
        is_behind = intro is not None and (begin.page, begin.y) >= (intro.page, intro.y)
        if is_behind or (intro is not None and begin.page == intro.page and begin.x0 > intro.x1):
            continue
        words = begin.text.split()
        is_text = len(words) > 4 and sum(word[:1].islower() for word in words) > 0.5 * len(words)
        if not is_text or begin.x1 - begin.x0 < 120 or _ends(begin, begin):
            continue
        beside = (line for line in others if line.page == begin.page and abs(line.y - begin.y) < 2)
        if any(line.x1 < begin.x0 and line.x1 - line.x0 > 100 for line in beside):
            continue
        rows = _grown(others, _first_of_paragraph(others, begin))
        text = _spaced(rows)
        words = text.split()
        is_prose = len(rows) > 2 and len(words) >= FEWEST_WORDS and not _NO_PROSE.search(text)
        is_lower = sum(word[:1].islower() for word in words) > 0.55 * len(words)
        if is_prose and is_lower and not rows[0].text[0].islower():
            return rows
    return []


def _first_of_paragraph(lines: Sequence[Line], line: Line) -> Line:
    """Return the first line of a line's paragraph: names may fill the lines above one of prose."""
    first: Line | None = line
    while first is not None:
        line = first
        above = (
            each
            for each in lines
            if each.page == line.page
            and 0.8 * line.size < line.y - each.y < 1.4 * line.size
            and abs(each.size - line.size) < 0.03 * line.size
            and abs(each.x1 - line.x1) < 3
            and abs(each.x0 - line.x0) < 2.5 * line.size
            and each.bold == line.bold
        )
        first = next(above, None)
    return line


def _title(
    lines: Sequence[Line], words: Counter[str], heading: Line | None, named: str
) -> tuple[str, Line | None]:
    """Return the title and its last line; ``heading`` is the abstract's, ``named`` the stated title."""
    first = next((line.page for line in lines if len(line.text) > 3), 0)
    is_cover = any(line.page == first and _COVER.search(line.text) for line in lines)
    first += is_cover and (heading is None or heading.page > first) and lines[-1].page > first
    page = [line for line in lines if line.page == first]
    most = 0.7 * max((each.y for each in page), default=0.0)
    bottom = heading.y if heading is not None and heading.page == first else most
    groups = _groups([each for each in page if each.y < bottom and re.search(r"[^\W\d_]", each.text)] or page)
    if stated := _stated(groups, named):
        return stated
    body = body_size(lines)
    texts = [(group, _spaced(group)) for group in groups]
    others = ((group, text) for group, text in texts if len(text.split()) > 9 or not _JOURNAL.match(text))
    usable = [group for group, text in others if len(re.findall(r"[^\W\d_]", text)) >= 3]
    several = [group for group in usable if len(_spaced(group).split()) > 1]
    large = [group for group in several or usable if group[0].size > 1.04 * body]
    marked = [group for group in several if group[0].bold or _spaced(group).isupper()]
    rest = next(iter(marked or several or usable), [])
    best = max(large, key=lambda each: (round(each[0].size, 1), each[0].bold, -each[0].y), default=rest)
    return (_MARKS.sub("", joined_text(best, words, plain=True)), best[-1] if best else None)


def _stated(groups: Sequence[Sequence[Line]], named: str) -> tuple[str, Line | None] | None:
    def letters(text: str) -> str:
        return "".join(filter(str.isalnum, text.lower()))

    wanted = letters(named)
    if len(named.split()) < 2 or len(wanted) < 10:
        return None
    lines = [line for group in groups for line in group]
    for begin in range(len(lines)):
        found = ""
        for line in lines[begin : begin + 8]:
            found += letters(line.plain)
            if found == wanted:
                return " ".join(named.split()), line
    return None


def _spaced(group: Sequence[Line]) -> str:
    return " ".join(line.text for line in group)


def _groups(lines: Sequence[Line]) -> list[list[Line]]:
    groups = list[list[Line]]()
    for line in sorted(lines, key=lambda each: (each.y, each.x0)):
        last = groups[-1][-1] if groups else line
        alike = abs(line.size - last.size) < 0.06 * last.size and line.bold == last.bold
        near = abs(line.y - last.y) < 2.0 or overlap(line, last.x0, last.x1) > -last.size
        if groups and alike and near and line.y - last.y < 1.9 * last.size:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def body_size(lines: Sequence[Line]) -> float:
    """Return the size that most letters have."""
    letters = Counter[float]()
    for line in lines:
        letters[round(line.size, 1)] += len(line.text)
    return letters.most_common(1)[0][0] if letters else 10.0


PAGES = 3  # that are read
SECONDS = 20.0  # within which they must be read; those of papers take a fifth of a second
MOST_BYTES = 1 << 30  # of memory that the process may ask for
FEWEST_LETTERS = 200  # on the first pages of a document that holds its text

_PROBLEMS = {
    "password": ("a PDF without a password", "an encrypted one; save it without", "a PDF with a password"),
    "damaged": ("a whole PDF", "it truncated or damaged; fetch it again", "a damaged PDF"),
    "no text": (
        "text on the first pages of a PDF",
        "hardly any, as in scans; recognize it first (ocrmypdf does), or give title and abstract as text",
        "a PDF without text",
    ),
    "": (
        f"a PDF whose first pages are read in {SECONDS:g} s and {MOST_BYTES >> 30} GiB",
        "another one; give title and abstract as text",
        "a PDF that cannot be read",
    ),
}
_ARXIV = re.compile(r"arXiv:\s?((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?)")
_DOI = re.compile(alternatives("doi"))


def read(stream: io.BufferedReader, name: str, _: Reading) -> Iterator[Entry]:
    """Yield the paper of a file, without an id; its abstract is None where none was found."""
    check_package("pypdfium2")
    data = stream.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        expected, reason = f"a PDF of at most {MAX_LINE_BYTES >> 20} MiB", "a PDF that is too large"
        yield Entry(name, fields.unfit(expected, "a larger one", "give its text", reason, name))
        return
    found = _read(data)
    if (problem := found.get("error")) is not None:
        expected, actual, reason = _PROBLEMS[problem]
        yield Entry(name, RecordError(f"{name}: expected {expected}, found {actual}", reason))
        return
    arxiv = found["arxiv"]
    digits = arxiv.rpartition("/")[2][:2]
    metadata = {
        "ids": {"arxiv": arxiv} if arxiv else {},
        "doi": found["doi"],
        "year": fields.year(f"{'19' if digits > '90' else '20'}{digits}") if arxiv else None,
        "file": PurePath(name).name,
        fields.ABSTRACT_FROM: found[fields.ABSTRACT_FROM],
    }
    texts = {"paper_id": None, "title": found["title"], "abstract": found["abstract"] or None}
    yield Entry(name, {**texts, "metadata": fields.present(metadata)})


_LOCK = threading.Lock()
_PROCESSES: list[work.Process] = []  # the process that reads, if there is one
atexit.register(lambda: [*map(work.Process.kill, _PROCESSES)])  # a daemon thread may still wait for it


def _read(data: bytes) -> dict[str, str]:
    """Return the answer of the process that reads; ``error`` is empty where it ends, or is too slow."""
    if work.is_limited:
        return answer(data)
    with _LOCK:
        if not _PROCESSES or _PROCESSES[0].poll() is not None:
            _PROCESSES[:] = [work.start([sys.executable, "-m", "qbe.corpus.pdf"])]
        line = b""
        try:
            line = work.answer_of(_PROCESSES[0], data, SECONDS)
        finally:
            if not line:  # also on an interrupt: the answer is not that of the next document
                process = _PROCESSES.pop()
                process.kill()
                process.communicate()
        return dict(json.loads(line)) if line else {"error": ""}


def answer(data: bytes) -> dict[str, str]:
    """Return what a document holds, or what is wrong with it as ``error``."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
        lines, upward = lines_of(document, PAGES)
    except pypdfium2.PdfiumError as error:
        return {"error": "password" if "assword" in str(error) or "ecurity" in str(error) else "damaged"}
    text = " ".join(line.text for line in lines)
    letters = sum(map(str.isalpha, text))
    unknown = sum(each == "\ufffd" or "\ue000" <= each <= "\uf8ff" for each in text)
    if letters < FEWEST_LETTERS or unknown > letters / 5:
        return {"error": "no text"}
    found = find(lines, str(document.get_metadata_value("Title")))
    stamp = _ARXIV.search(upward)
    dois = {match[1].lower() for line in lines if line.page == 0 and (match := _DOI.fullmatch(line.text))}
    return {**found, "arxiv": stamp[1] if stamp else "", "doi": dois.pop() if len(dois) == 1 else ""}


def main() -> None:
    work.limit(MOST_BYTES)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while size := source.read(8):
        data = source.read(int.from_bytes(size, "big"))
        target.write(json.dumps(answer(data)).encode("ascii") + b"\n")
        target.flush()


if __name__ == "__main__":
    main()
