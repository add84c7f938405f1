"""Whether a text looks like English, which the models read."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGLISH = _words("the of and to for we that with are is by this from as our which these be it have")
"""Frequent words of English, `in`, `a`, `an` and `on` left out: other languages have them, too."""

_OTHERS = _words(
    """
    le la les des et une dans pour est nous sur du au par avec que qui der das und mit von ist ein eine wir
    nicht für auf dem den el los las del y en una con para se il di che per della un nel sono os uma da em
    com não um het een van voor og det som att och til ikke
    """
)
"""Those of French, German, Spanish, Italian, Portuguese, Dutch and Scandinavian languages."""


def looks_english(text: str) -> bool:
    """Whether at least half of the letters of a text are Latin, and frequent words of other languages do not
    outnumber those of English.

    >>> texts = "鱼在游泳。", "🐟", "Das Schiff fährt mit der Flut.", "The ship sails. Déjà vu du jour."
    >>> [looks_english(text) for text in texts]
    [False, False, False, True]
    """
    letters = [letter for letter in text if letter.isalpha()]
    # Latin letters with their accents end at U+024F; formulas have a few Greek ones.
    if not letters or sum(letter < "\u0250" for letter in letters) < len(letters) / 2:
        return False
    words = text.lower().split()
    others = sum(word in _OTHERS for word in words)
    return others < 2 or others <= sum(word in _ENGLISH for word in words)
