"""Words that two sentences have in common, in bold on a terminal."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from qbe.bibliography.keys import FUNCTION_WORDS

BOLD, NORMAL = "\x1b[1m", "\x1b[22m"
"""What a terminal takes for the begin and the end of bold text."""

_WORD = re.compile(r"[^\W_]+")


def common_words(first: str, second: str) -> frozenset[str]:
    """The words of both texts as `in_bold` compares them: without case and plural, function words left out.

    >>> sorted(common_words("We study graphs of words.", "Words are seen in a graph; it is of use."))
    ['graph', 'word']
    """
    return _words(first) & _words(second)


def in_bold(text: str, words: AbstractSet[str]) -> str:
    r"""A text whose words among those of `common_words` are in bold.

    >>> in_bold("A graph of words.", {"word"})
    'A graph of \x1b[1mwords\x1b[22m.'
    """
    return _WORD.sub(lambda word: f"{BOLD}{word[0]}{NORMAL}" if _stem(word[0]) in words else word[0], text)


def _words(text: str) -> frozenset[str]:
    words = (word.casefold() for word in _WORD.findall(text))
    return frozenset(_stem(word) for word in words if len(word) > 1 and word not in FUNCTION_WORDS)


def _stem(word: str) -> str:
    word = word.casefold()
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
