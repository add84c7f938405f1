"""The text of lines: as they are printed, and with the words put together that are parted at their ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from qbe.corpus.pdf.lines import Line

_FIRST_PARTS = frozenset(
    (
        *("self", "well", "cross", "low", "high", "real", "large", "small", "short", "long", "end", "fine"),
        *("non", "multi", "semi", "state", "co", "pre", "post", "sub", "open", "zero", "few", "one", "two"),
        *("three", "off", "on", "hand", "data", "user", "task", "domain", "model", "time", "cost", "rule"),
    )
)
"""Words behind which a hyphen at the end of a line is mostly one of the word itself."""


def words_of(lines: Sequence[Line]) -> Counter[str]:
    """The words of the lines, hyphens kept, those at their ends left out, which may be parts."""
    return Counter(word for line in lines for word in re.findall(r"[\w-]+", line.text.lower())[1:-1])


def spaced(group: Sequence[Line]) -> str:
    """The lines as they are, with spaces between them."""
    return " ".join(line.text for line in group)


def joined_text(rows: Sequence[Line], words: Counter[str], *, plain: bool = False) -> str:
    """The text of lines, words put together that are parted at their ends; ``words`` are those of the
    document (`words_of`), ``plain`` says that no line has the mark of a footnote at its end.

    >>> rows = [Line(text, text, 0, 0, 9, 0, 9, False) for text in ("Well-", "known fish in riv-", "ers")]
    >>> joined_text(rows, Counter())
    'Well-known fish in rivers'
    """
    text = ""
    for place, row in enumerate(rows, start=1):
        piece = row.plain if plain or place == len(rows) else row.text  # no mark of a footnote at the end
        if text.endswith("-") and text[-2:-1].isalnum() and piece[:1].isalnum():
            text = text if _keeps_hyphen(text, piece, words) else text[:-1]
            text += piece
        else:
            text += f" {piece}" if text else piece
    return " ".join(text.split())


def _keeps_hyphen(text: str, following: str, words: Counter[str]) -> bool:
    """Whether the hyphen at the end of a line is one of its word, by the same word elsewhere."""
    before = re.search(r"[\w-]*$", text[:-1].lower())
    after = re.match(r"[\w-]*", following.lower())
    first, second = before[0] if before else "", after[0] if after else ""
    if following[0].isupper() or following[0].isdigit() or "-" in first:
        return True
    joined, parted = words[first + second], words[f"{first}-{second}"]
    return parted > joined if joined or parted else first in _FIRST_PARTS
