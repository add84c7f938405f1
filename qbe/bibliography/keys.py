"""Keys of entries, by which a text cites them."""

from __future__ import annotations

import re
import string
import unicodedata
from itertools import count

from qbe.bibliography.reference import Reference
from qbe.corpus.authors import split_name

FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about across after against all along also among an and are as at be been before between beyond "
        "both but by can did do does each for from had has have how if in into is it its may more most no "
        "not of off on onto or other our over so such than that the their them then there these they this "
        "those through to toward towards under upon us using via was we were what when where which while "
        "who why will with within without you your ",
    )
)
"""English articles, pronouns, prepositions, conjunctions and auxiliary verbs, in lower case."""


_LONGEST = 40
"""Letters of a name or a word in a key; longer ones are no words."""

_ANONYMOUS = "Anonymous"
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
    | {"đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "\u0131": "i"}
)
"""Letters that have no accent to be removed."""


class Keys:
    """Gives the entries of a file their keys, one after the other.

    A key is the library's own, else the first author's family name without particles, the year, and the
    first word of the title that says something, in ASCII. It depends on the paper alone; of papers with the
    same key in a file, the second gets an "a" at its end, the third a "b". Keys that differ by case only are
    the same, since they are to BibTeX.

    >>> from qbe.bibliography.reference import reference_of
    >>> from qbe.types import Paper
    >>> paper = Paper("7", "On the Fish of Çeşme", (), metadata={"authors": ["Ann Müller"], "year": 2019})
    >>> keys = Keys()
    >>> [keys.add(reference_of(paper)) for _ in range(3)]
    ['Muller2019fish', 'Muller2019fisha', 'Muller2019fishb']
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, count[int]] = {}

    def add(self, reference: Reference) -> str:
        """The key of a paper that is not in the file yet."""
        plain = reference.key or key_of(reference)
        key = plain
        while key.casefold() in self._taken:
            key = plain + _in_letters(next(self._next.setdefault(plain.casefold(), count())))
        self._taken.add(key.casefold())
        return key


def key_of(reference: Reference) -> str:
    """The key that is made for a paper in a file of its own.

    >>> from qbe.bibliography.reference import reference_of
    >>> from qbe.types import Paper
    >>> key_of(reference_of(Paper("W1-7", "鱼", ()))), key_of(reference_of(Paper("8", "On fish", ())))
    ('AnonymousW17', 'Anonymousfish')
    """
    first = reference.names[0] if reference.names else ""
    name = split_name(first)
    family = _ascii_letters(_without_particles(name.family) if name else first) or _ANONYMOUS
    words = (_ascii_letters(word).lower() for word in re.split(r"[\W_]+", _folded(reference.title)))
    subject = next((word for word in words if len(word) > 2 and word not in FUNCTION_WORDS), "")
    return f"{family}{reference.year}{subject or _ascii_letters(reference.paper_id, string.digits)}"


def _without_particles(family: str) -> str:
    """The family name without words in lower case, such as "van der", if anything is left."""
    return " ".join(word for word in family.split() if not word.islower()) or family


def _folded(text: str) -> str:
    """The text without accents."""
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(each for each in decomposed if not unicodedata.combining(each))


def _ascii_letters(text: str, others: str = "") -> str:
    allowed = string.ascii_letters + others
    return "".join(each for each in _folded(text) if each in allowed)[:_LONGEST]


def _in_letters(number: int) -> str:
    """0 is a, 25 is z, 26 is aa."""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = string.ascii_lowercase[letter] + text
    return text
