"""Lines of CSV that a spreadsheet shows as they are, and computes nothing of."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from qbe.plain import plain

_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four: = + - @ in full width
"""What a spreadsheet takes for the beginning of a formula."""


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as lines of CSV, with an apostrophe before a text that would be a formula; numbers stay.

    >>> print(to_csv([["-1+2", -0.5, "On fish"]]), end="")
    '-1+2,-0.5,On fish
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_guarded, row) for row in rows)
    return text.getvalue()


def _guarded(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = plain(cell)
    return f"'{text}" if text.lstrip(" \N{NO-BREAK SPACE}").startswith(_FORMULAS) else text
