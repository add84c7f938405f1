"""Names of authors: out of a paper's metadata, and with the family name in front."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from qbe.bibliography.clean import clean
from qbe.corpus.ris import given_first

_BETWEEN = re.compile(r"\s*;\s*|\s*,?\s+and\s+|\s+&\s+")
_SUFFIXES = {"jr", "sr", "ii", "iii", "iv"}
_ORGANIZATIONS = {
    *("association", "center", "centre", "collaboration", "committee", "company", "consortium"),
    *("corporation", "department", "foundation", "group", "inc", "institute", "laboratory", "ltd"),
    *("organisation", "organization", "project", "society", "task", "team", "university"),
}
"""Words of names that belong to no person."""

_IN_NAMES = ".'\u2019-\u2010"
"""Characters that names have beside letters."""


class Name(NamedTuple):
    """The parts of a person's name; ``family`` has particles such as "van der" as well."""

    family: str
    given: str
    suffix: str


def author_names(value: Any) -> list[str]:
    """The authors of a paper's metadata as "Given Family", LaTeX accents as letters; what is no name is left
    out.

    ``value`` is a list of strings, as the readers make it. In a corpus of JSON lines it may also be one
    string of names with commas, semicolons or "and" between them, or a list of objects with ``name`` or with
    ``first``, ``middle`` (a list), ``last`` and ``suffix``, as S2ORC has them.

    >>> author_names("Ann Lee, Jan van der Berg and Cy Doe"), author_names(["Lee, Ann", "Plato"])
    (['Ann Lee', 'Jan van der Berg', 'Cy Doe'], ['Ann Lee', 'Plato'])
    >>> author_names([{"first": "Ann", "middle": ["B."], "last": "Lee", "suffix": ""}, {"name": "Cy Doe"}])
    ['Ann B. Lee', 'Cy Doe']
    """
    if isinstance(value, str):
        names = [name for part in _BETWEEN.split(clean(value)) for name in _between_commas(part)]
    elif isinstance(value, list | tuple):
        names = [_name(each) for each in value]
    else:
        names = []
    return [name for name in (_in_order(each) for each in names) if name]


def _between_commas(text: str) -> list[str]:
    """The names of a text: "Lee, Ann" is one, "Ann Lee, Cy Doe" are two."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 2 and any(len(part.split()) == 1 for part in parts):
        return [text]
    return parts


def _name(value: Any) -> str:
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, Mapping):
        return ""
    middle = value.get("middle")
    middles = middle if isinstance(middle, list) else [middle]
    parts = [value.get("first"), *middles, value.get("last"), value.get("suffix")]
    return clean(value.get("name")) or " ".join(filter(None, map(clean, parts)))


def _in_order(name: str) -> str:
    """The given name first; a name with more than two commas is no person's, and stays."""
    return given_first(name) if name.count(",") in (1, 2) else name


def split_name(name: str) -> Name | None:
    """The parts of a person's name in the order Given Family; None where it is not safe to tell them, as in
    single words, organizations, and names with anything but letters, full stops, apostrophes and hyphens.

    The family name is the last word, or begins with the first word in lower case behind the first.

    >>> split_name("Ludwig van Beethoven"), split_name("Martin Luther King Jr.").family
    (Name(family='van Beethoven', given='Ludwig', suffix=''), 'King')
    >>> split_name("Plato"), split_name("ATLAS Collaboration")
    (None, None)
    """
    words = name.split()
    if not all(map(_is_plain, words)) or any(word.lower().strip(".") in _ORGANIZATIONS for word in words):
        return None
    suffix = ""
    if len(words) > 2 and words[-1].lower().rstrip(".") in _SUFFIXES and not words[-1].islower():
        suffix = words.pop()
    if len(words) < 2:
        return None
    begin = next((i for i, word in enumerate(words[1:], start=1) if word[0].islower()), len(words) - 1)
    return Name(" ".join(words[begin:]), " ".join(words[:begin]), suffix)


def _is_plain(word: str) -> bool:
    """Whether a word may stand in a name whose parts are told by commas and case."""
    letters = all(each.isalpha() or each in _IN_NAMES or unicodedata.combining(each) for each in word)
    return letters and word[0].isalpha() and word.lower() not in ("and", "others")
