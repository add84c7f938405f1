"""The title of a paper: the largest lines above its abstract that are no journal's name and no label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from qbe.corpus.pdf.lines import Line, joined_text, overlap, spaced, words_of

_JOURNAL = re.compile(
    r"(?:the )?(?:journal of|proceedings of|international journal|transactions on|ieee |acm |annals of|"
    r"physical review|physics letters|nuclear physics|lecture notes|european organi[sz]ation|"
    r"deutsches elektronen|preprint|typeset using|draft version|technical report|working paper|"
    r"research (?:article|paper|report)|original (?:article|research|paper)|review article|"
    r"regular (?:article|paper)|article\b|letters?\b|short (?:paper|communication)|communication$|report no|"
    r"open access|under review|published (?:as|in|by)|available (?:at|online)|contents lists?|https?:|www\.|"
    r"doi\b|arxiv|volume \d|vol\. ?\d)|.{0,40}\bjournal\b(?: of .{0,40})?$|journal homepage",
    re.IGNORECASE,
)
_MARKS = re.compile(r"[\s*\u2020\u2021\u00a7\u00b6\u2217\u22c6\u2225#]+$|^[\s*\u2020\u2021\u2217]+")


def title_of(lines: Sequence[Line], heading: Line | None, named: str) -> tuple[str, Line | None]:
    """The title and its last line; ``heading`` is the abstract's, ``named`` what the document states."""
    first = next((line.page for line in lines if len(line.text) > 3), 0)
    page = [line for line in lines if line.page == first]
    bottom = 0.7 * max((each.y for each in page), default=0.0)
    if heading is not None and heading.page == first:
        bottom = heading.y
    above = [line for line in page if line.y < bottom and re.search(r"[^\W\d_]", line.text)]
    groups = list(_groups(above or page))
    if stated := _stated(groups, named):
        return stated
    body = body_size(lines)
    usable = [group for group in groups if not _is_other(group)]
    several = [group for group in usable if len(spaced(group).split()) > 1]
    large = [group for group in several or usable if group[0].size > 1.04 * body]
    if large:
        best = max(large, key=lambda group: (round(group[0].size, 1), group[0].bold, -group[0].y))
    else:
        marked = [group for group in several if group[0].bold or spaced(group).isupper()]
        best = next(iter(marked or several or usable), [])
    return (_MARKS.sub("", joined_text(best, words_of(lines), plain=True)), best[-1] if best else None)


def _stated(groups: Sequence[Sequence[Line]], named: str) -> tuple[str, Line | None] | None:
    """The title that the document states, where its letters stand on the page."""
    wanted = _letters(named)
    if len(named.split()) < 2 or len(wanted) < 10:
        return None
    lines = [line for group in groups for line in group]
    for begin in range(len(lines)):
        letters = ""
        for line in lines[begin : begin + 8]:
            letters += _letters(line.plain)
            if letters == wanted:
                return " ".join(named.split()), line
    return None


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _groups(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines of one size that follow each other closely."""
    group = list[Line]()
    for line in sorted(lines, key=lambda each: (each.y, each.x0)):
        if group:
            last = group[-1]
            alike = abs(line.size - last.size) < 0.06 * last.size and line.bold == last.bold
            near = abs(line.y - last.y) < 2.0 or overlap(line, last.x0, last.x1) > -last.size
            if not (alike and near and line.y - last.y < 1.9 * last.size):
                yield group
                group = []
        group.append(line)
    if group:
        yield group


def _is_other(group: Sequence[Line]) -> bool:
    """Whether large lines are not the title: the name of a journal or of a kind of paper."""
    text = spaced(group)
    is_journal = _JOURNAL.match(text) is not None and len(text.split()) < 10
    return is_journal or len(re.findall(r"[^\W\d_]", text)) < 3


def body_size(lines: Sequence[Line]) -> float:
    """The size that most letters have."""
    letters = Counter[float]()
    for line in lines:
        letters[round(line.size, 1)] += len(line.text)
    return letters.most_common(1)[0][0] if letters else 10.0
