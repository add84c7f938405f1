"""Positions of the formulas in a LaTeX text."""

from __future__ import annotations

import re
from collections.abc import Iterator

FORMULA_ENDS = ("$", "$$", "\\)", "\\]")

_FORMULA = re.compile(
    r"""\$\$[^$]++\$\$
    | (?<!\\)\$[^$]++\$(?!\d)   # two prices are no formula
    | \\\((?:[^\\]|\\[^()])*+\\\)
    | \\\[(?:[^\\]|\\[^\[\]])*+\\\]
    """,
    re.VERBOSE,
)
_NEW_SENTENCE = re.compile(r"[.!?]\s+[A-Z][a-z]*+\s+[a-z]{2}")
_WORDS = re.compile(r"\s(?:[a-z]{2,}+\s){3}")


def formulas(text: str) -> Iterator[tuple[int, int]]:
    r"""Offsets (start, end) of ``$...$``, ``$$...$$``, ``\(...\)`` and ``\[...\]``, in order.

    The time is linear in the length of the text: a search that fails stops at the next delimiter of its kind.

    >>> text = "The norm $|x|$ costs $5 or $6."
    >>> [text[start:end] for start, end in formulas(text)]
    ['$|x|$']
    """
    formula = _FORMULA.search(text) if "$" in text or "\\" in text else None
    while formula:
        start, end = formula.span()
        if _is_prose(text[start:end]):
            end -= 1  # the signs are no pair: the last one may open the next formula
        else:
            yield start, end
        formula = _FORMULA.search(text, end)


def _is_prose(formula: str) -> bool:
    """Whether the text between two delimiters contains the beginning of a sentence, or only plain words."""
    return bool(_NEW_SENTENCE.search(formula) or ("\\" not in formula and _WORDS.search(formula)))
