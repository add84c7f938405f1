"""Texts that databases and programs print in place of an abstract that they do not have."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_CHARS = 200
"""Longer texts are abstracts."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALONE = _words(
    "na nan nil nat n/a n.a n/d n.d #n/a unknown undefined empty tba tbd pending abstract summary none null "
    "missing unavailable absent omitted"
)
_NEGATIONS = _words(
    "no not none null without lacks lacking missing unavailable absent omitted isn't doesn't hasn't cannot"
)
_SUBJECTS = _words("abstract abstracts summary available unavailable provided supplied submitted displayed")
_OTHERS = _words(
    "a an any are article at author authors be been book but by chapter content contain contains "
    "currently data database description do document does editorial english entry exist exists for "
    "found from full given has have here in included information is issue it item journal language of "
    "on online paper present preview publication publisher record recorded see so sorry source specified "
    "text that the there this time title to was website with work yet"
)


def is_placeholder(sentences: Sequence[str]) -> bool:
    """Whether sentences are no abstract: nothing, signs alone, or a text that stands for an absent one.

    Such a text is a word of _ALONE, or says of a subject that it is absent, in few words.

    >>> is_placeholder(["[No abstract available]"]), is_placeholder(["n/a"]), is_placeholder(["--", "?"])
    (True, True, True)
    >>> is_placeholder(["No abstract algebra is needed."]), is_placeholder(["No."])
    (False, False)
    """
    if sum(map(len, sentences)) > _MAX_CHARS:
        return False
    text = " ".join(sentences).casefold().replace("\u2019", "'")
    if not any(map(str.isalpha, text)):
        return True
    words = [
        word
        for word in (
            each.strip(".,:;!?*\"'\u201c\u201d\u00ab\u00bb()[]{}<>-\u2013\u2014_") for each in text.split()
        )
        if word
    ]
    if len(words) == 1 and words[0] in _ALONE:
        return True
    negations, subjects = _NEGATIONS.intersection(words), _SUBJECTS.intersection(words)
    return bool(negations and subjects) and _OTHERS.issuperset({*words} - negations - subjects)
