"""Which papers name a technique, in their title or where they say how."""

from __future__ import annotations

from collections.abc import Sequence

from qbe.errors import UsageError
from qbe.grade.words import words_of
from qbe.types import Facet, Paper, Sentence

SAID_FROM = 0.3
"""From what probability of method and objective together a sentence says how: "we propose a graph network for
traffic" is an objective, and names the technique.
"""


class Technique:
    """A name of one or several words, which a paper has next to each other, whatever their number and case.

    >>> technique = Technique("conditional random field")
    >>> technique.is_named_by(Paper("1", "Conditional Random Fields for tagging", ()))
    True
    >>> other = Paper("2", "On stone", (Sentence("We cut it by random fields.", Facet.METHOD),), True)
    >>> technique.is_named_by(other), Technique("random-field").is_named_by(other)
    (False, True)
    """

    def __init__(self, name: str) -> None:
        """Raises UsageError for a name without a letter or a digit that could be looked for."""
        self._words = _words(name)
        if not self._words:
            raise UsageError(
                f"expected the name of a technique in `where`, such as technique=attention, found {name!r}"
            )
        self.parts: Sequence[bytes] = [_unchanging(word).encode() for word in self._words]
        """Bytes that stand in every ASCII text, in lower case, that has the name."""

    def is_named_by(self, paper: Paper) -> bool:
        """Whether the title has the name, or a sentence that says how; any one of a paper without labels."""
        said = [sentence.text for sentence in paper.sentences if not paper.labelled or _says_how(sentence)]
        return any(map(self._stands_in, (paper.title, *said)))

    def _stands_in(self, text: str) -> bool:
        words, length = _words(text), len(self._words)
        return any(words[place : place + length] == self._words for place in range(len(words) - length + 1))


def _says_how(sentence: Sentence) -> bool:
    if sentence.probabilities is None:
        return sentence.facet is Facet.METHOD
    return sentence.probabilities.method + sentence.probabilities.objective >= SAID_FROM


def _words(text: str) -> list[str]:
    return words_of(text.replace("-", " "))


def _unchanging(word: str) -> str:
    """The beginning of a word that its plural has, too: ``studies`` is one of ``study``."""
    return word.removesuffix("y")
