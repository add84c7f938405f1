"""Texts of other people, as one line that does nothing to where it is shown."""

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
    r"""A text in one line and single spaces, without control characters and signs of direction.

    Whatever a person is shown of papers and names of files passes here: tables, messages, logs. Half a
    surrogate pair, which JSON and names of files may hold and UTF-8 not, becomes a question mark.

    >>> plain("On \x1b[2Jfish\u2028and\n \u202estone"), plain(2019)
    ('On [2Jfish and stone', '2019')
    """
    text = str(value)
    if text.isprintable() and "  " not in text:  # most texts; neither sort of character is printable
        return text.strip()
    return " ".join(text.encode(errors="replace").decode().translate(_HARMLESS).split())
