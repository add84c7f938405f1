"""Papers that occur twice under different ids, recognized by their titles or DOIs."""

from __future__ import annotations

import unicodedata
from typing import Any

from qbe.types import Paper

FEWEST_WORDS = 4
"""Shorter titles ("Editorial", "A survey") are compared only where year and first author are known."""


_ASCII = {
    code: chr(code).lower() if chr(code).isalnum() else "" if chr(code) == "'" else " " for code in range(128)
}
"""What `normalized_title` makes of each ASCII character."""


class Seen:
    """The papers before, by title (with year and first author) or by DOI.

    >>> seen = Seen("title")
    >>> seen.first(Paper("1", "Attention is all you need", (), metadata={"year": 2017})) is None
    True
    >>> seen.first(Paper("2", "Attention Is All You Need.", (), metadata={"date": "2017-06-12"}))
    '1'
    """

    def __init__(self, by: str) -> None:
        self.by = "DOI" if by == "doi" else "title, year and first author"
        self._key = _doi if by == "doi" else _title
        self._ids: dict[str, str] = {}

    def first(self, paper: Paper) -> str | None:
        """The id of an earlier paper that is the same one; None where this is the first."""
        key = self._key(paper)
        if key is None:
            return None
        first = self._ids.setdefault(key, paper.paper_id)
        return None if first == paper.paper_id else first


def normalized_title(title: str) -> str:
    """Lower-case words of letters and digits, without accents.

    >>> normalized_title("Gödel's Theorem: A Proof.")
    'godels theorem a proof'
    """
    if title.isascii():
        return " ".join(title.translate(_ASCII).split())
    letters = unicodedata.normalize("NFKD", title.casefold())
    kept = "".join(
        c if c.isalnum() else "" if c in "'\u2019" or unicodedata.combining(c) else " " for c in letters
    )
    return " ".join(kept.split())


def _title(paper: Paper) -> str | None:
    title, author = normalized_title(paper.title), first_author(paper.metadata.get("authors"))
    if not title or (title.count(" ") + 1 < FEWEST_WORDS and not (paper.year and author)):
        return None
    return f"{title}|{paper.year}|{author}"


def first_author(authors: Any) -> str:
    """The family name of the first of some authors: a list, or one text with commas or semicolons.

    >>> first_author(["Kurt Gödel", "Emil Post"]), first_author("Kurt Gödel, Emil Post"), first_author(None)
    ('godel', 'godel', '')
    """
    if isinstance(authors, str):
        authors = authors.replace(";", ",").split(",")
    if not isinstance(authors, list) or not authors:
        return ""
    first = authors[0]
    name = first.get("name") or first.get("last") or first.get("family") if isinstance(first, dict) else first
    return normalized_title(str(name or "")).rpartition(" ")[2]


def _doi(paper: Paper) -> str | None:
    doi = paper.metadata.get("doi")
    return doi.lower() if isinstance(doi, str) and doi else None
