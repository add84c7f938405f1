"""Texts of other people, so that they do nothing to where they are shown."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANKS = (*range(32), *range(127, 160), 0x2028, 0x2029)
"""Control characters of both sets, on which terminals act, and separators of lines."""
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What makes letters appear in another order than they have."""

_HARMLESS: Mapping[int, str | None] = dict.fromkeys(_BLANKS, " ") | dict.fromkeys(_DIRECTIONS)


def plain(value: object) -> str:
    r"""A text without control characters, signs of direction and separators of lines.

    Whatever a person is shown of papers and names of files passes here: tables, messages, logs. Half a
    surrogate pair, which JSON and names of files may hold and UTF-8 not, becomes a question mark.

    >>> plain("On \x1b[2Jfish\u2028and \u202estone"), plain(2019)
    ('On  [2Jfish and stone', '2019')
    """
    text = str(value)
    if text.isprintable():  # none of these is
        return text
    return text.encode(errors="replace").decode().translate(_HARMLESS)


def one_line(value: object) -> str:
    r"""The same in single spaces, as messages are shown.

    >>> one_line("cannot read a\x1b[2J.bib:\n no such file")
    'cannot read a [2J.bib: no such file'
    """
    return " ".join(plain(value).split())
