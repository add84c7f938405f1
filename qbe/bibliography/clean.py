"""Texts of papers as entries hold them: one line, LaTeX's accents as letters."""

from __future__ import annotations

from typing import Any

from qbe.corpus.latex import without_latex
from qbe.plain import one_line


def clean(value: Any) -> str:
    r"""A text in one line, with characters in place of LaTeX's accents and escapes; formulas stay.

    '' for what is no text.

    >>> print(clean("Kekul\\'e  cells\nat 5\\%, $O(n^2)$")), clean(None)
    Kekulé cells at 5%, $O(n^2)$
    (None, '')
    """
    return " ".join(without_latex(in_one_line(value)).split())


def in_one_line(value: Any) -> str:
    r"""A text as it is, but in single spaces and without control characters; '' for what is no text.

    >>> in_one_line("10.1145/7_9 \t(b)"), in_one_line(7)
    ('10.1145/7_9 (b)', '')
    """
    return one_line(value) if isinstance(value, str) else ""
