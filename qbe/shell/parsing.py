"""Arguments of commands: numbers of hits, years, positions of sentences."""

from __future__ import annotations

import re
from typing import NamedTuple

from qbe.errors import UsageError

ALL = "all"
_MOST = 1000
"""Numbers in one command, such as 1-1000."""


class Years(NamedTuple):
    """The first and the last year, each None where it is open."""

    first: int | None
    last: int | None

    def __str__(self) -> str:
        if self.first == self.last:
            return ALL if self.first is None else str(self.first)
        return f"{self.first or ''}-{self.last or ''}"


ANY = Years(None, None)
"""All years."""


def parse_numbers(text: str) -> list[int]:
    """Numbers such as ``1 3 5-7``, each once, in this order; raises UsageError.

    >>> parse_numbers("1, 3 5-7 3")
    [1, 3, 5, 6, 7]
    """
    numbers: list[int] = []
    for word in text.replace(",", " ").split():
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word, re.ASCII)
        if not match:
            raise UsageError(f"expected numbers of hits such as 1 3 5-7, found {word!r}")
        first = int(match[1])
        last = int(match[2] or first)
        if last - first >= _MOST:
            raise UsageError(f"expected at most {_MOST} numbers, found {word}")
        numbers += range(first, last + 1)
    if not numbers:
        raise UsageError("expected numbers of hits such as 1 3 5-7, found none")
    return list(dict.fromkeys(numbers))


def parse_years(text: str) -> Years:
    """Years such as ``2015-2019``, ``2015-``, ``-2019`` or ``2018``, or ``all``; raises UsageError.

    >>> parse_years("2015-"), parse_years("2018"), parse_years("all")
    (Years(first=2015, last=None), Years(first=2018, last=2018), Years(first=None, last=None))
    """
    if text == ALL:
        return ANY
    match = re.fullmatch(r"(\d{1,4})?(-)?(\d{1,4})?", text, re.ASCII)
    if not match or not (match[1] or match[3]):
        raise UsageError(f"expected years such as 2015-2019, 2015-, -2019, 2018 or all, found {text!r}")
    first, last = (None if group is None else int(group) for group in (match[1], match[3]))
    return Years(first, last if match[2] else first)


def parse_positions(text: str) -> list[int]:
    """Positions of sentences such as ``0,2``; raises UsageError.

    >>> parse_positions("0,2 3")
    [0, 2, 3]
    """
    words = text.replace(",", " ").split()
    if not words or not all(re.fullmatch(r"\d{1,5}", word, re.ASCII) for word in words):
        raise UsageError(f"expected positions of sentences such as 0,2 (show has them), found {text!r}")
    return [int(word) for word in words]
