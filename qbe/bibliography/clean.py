"""Texts of papers and names of authors as entries hold them: one line, LaTeX's accents as letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.corpus.authors import person_name, read_name, split_authors
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


def author_names(value: Any) -> list[str]:
    """The authors of a paper's metadata as `qbe.corpus.authors.person_name` has them, LaTeX's accents as
    letters; what is no name is left out.

    ``value`` is a list of strings, as the readers make it. In a corpus of JSON lines it may also be one
    string of names with commas, semicolons or "and" between them, or a list of objects with ``name`` or with
    ``first``, ``middle`` (a list), ``last`` and ``suffix``, as S2ORC has them.

    >>> author_names("Ann Lee, Jan van der Berg and Cy Doe"), author_names(["Lee, Ann", "Plato"])
    (['Ann Lee', 'Jan van der Berg', 'Cy Doe'], ['Ann Lee', 'Plato'])
    >>> author_names([{"first": "Ann", "middle": ["B."], "last": "Lee", "suffix": ""}, {"name": "Cy Doe"}])
    ['Ann B. Lee', 'Cy Doe']
    """
    if isinstance(value, str):
        return split_authors(clean(value))
    return [name for name in map(_name, value) if name] if isinstance(value, list | tuple) else []


def _name(value: Any) -> str:
    if isinstance(value, str):
        name = clean(value)
        return read_name(name) if "," in name else name
    if not isinstance(value, Mapping):
        return ""
    middle = value.get("middle")
    given = [value.get("first"), *(middle if isinstance(middle, list) else [middle])]
    family, suffix = clean(value.get("last")), clean(value.get("suffix"))
    return clean(value.get("name")) or person_name(family, " ".join(filter(None, map(clean, given))), suffix)
