"""Names of authors in BibTeX: between "and", in the forms of BibTeX and biblatex, with braces and LaTeX."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from qbe.corpus.authors import has_others, person_name, read_name, split_authors
from qbe.corpus.latex import clean_bibtex
from qbe.corpus.markup import plain

_AND = re.compile(r"\s+and(?=\s)", re.IGNORECASE)
_COMMA, _SPACE = re.compile(","), re.compile(r"(?<!\\[uvHckrdb])(?:\s|(?<!\\)~)+")
_EITHER = re.compile(r"[\s,]+")
_DBLP_NUMBER = re.compile(r"\s0\d{3}$")
_MARKED = re.compile(r"[{}\\~&=;]")
_PART = re.compile(r"\s*(family|given|prefix|suffix)\s*=(.*)", re.IGNORECASE | re.DOTALL)


def bibtex_credits(text: str) -> dict[str, Any]:
    r"""The metadata ``authors`` of a list of names, and ``et_al`` (True) where it ends with "others".

    >>> bibtex_credits(r"{Fish and Sons, Inc.} and Ludwig van Beethoven and family=G{\"o}del, given=K.")
    {'authors': ['Fish and Sons, Inc.', 'Ludwig van Beethoven', 'K. Gödel'], 'et_al': None}
    >>> bibtex_credits(r"Hern{\'a}ndez N{\'u}{\~n}ez, Jos{\'e} and Doe, and others")
    {'authors': ['Hernández Núñez, José', 'Doe'], 'et_al': True}
    """
    names = [name for each in _outside_braces(text, _AND) if (name := each.strip())]
    others = bool(names) and has_others(names[-1])
    if others:
        names[-1:] = split_authors(names[-1])
    return {
        "authors": [author for name in names for author in _people(name) if author],
        "et_al": others or None,
    }


@lru_cache(maxsize=1 << 14)
def _people(name: str) -> tuple[str, ...]:
    """The person or, as a whole in braces, the organization of that name, as `person_name` has it; several
    where people are not separated by "and".
    """
    name = _DBLP_NUMBER.sub("", name)
    parts = name.split(",")
    if _MARKED.search(name):
        name = plain(name)
        if name.startswith("{") and len(_outside_braces(name, _EITHER)) == 1:
            return (clean_bibtex(name),)
        parts = _outside_braces(name, _COMMA)
        named = filter(None, map(_PART.match, parts))
        if values := {part[1].lower(): clean_bibtex(part[2]) for part in named}:
            family = f"{values.get('prefix', '')} {values.get('family', '')}"
            return (person_name(family, values.get("given", ""), values.get("suffix", "")),)
    parts = [part for each in parts if (part := clean_bibtex(each).strip())]
    if len(parts) > 3 or ";" in name or " & " in name:
        return tuple(split_authors(clean_bibtex(name)))
    if len(parts) == 3:
        return (read_name(", ".join(parts)),)
    if len(parts) == 2:
        return (person_name(*parts),)
    if "{" not in name:
        return (read_name(parts[0]),) if parts else ()
    words = [word for each in _outside_braces(name.strip(" ,"), _SPACE) if (word := clean_bibtex(each))]
    begin = next((i for i, word in enumerate(words[1:-1], 1) if word[0].islower()), len(words) - 1)
    return (person_name(" ".join(words[begin:]), " ".join(words[:begin])),) if words else ()


def _outside_braces(text: str, separator: re.Pattern[str]) -> list[str]:
    """The parts of a text between separators that stand in no braces."""
    if "{" not in text:
        return separator.split(text)
    parts, begin, place, depth = list[str](), 0, 0, 0
    for match in separator.finditer(text):
        depth += text.count("{", place, match.start()) - text.count("}", place, match.start())
        place = match.start()
        if depth <= 0:
            parts.append(text[begin:place])
            begin = match.end()
    return [*parts, text[begin:]]
