"""Titles of the same paper: near duplicates, by the words that two titles share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from qbe.corpus.jsonl import read_jsonl

MAX_JACCARD = 0.7
"""Titles of a higher Jaccard similarity (words in both / words in either) count as the same paper's."""


def title_words(title: str) -> frozenset[str]:
    """The words of a title, lower case, without punctuation.

    >>> sorted(title_words("On Stone: a Study of Stone"))
    ['a', 'of', 'on', 'stone', 'study']
    """
    return frozenset(re.findall(r"\w+", title.lower()))


class TitleIndex:
    """A set of titles that also finds near duplicates (Jaccard similarity of the words above MAX_JACCARD).

    >>> TitleIndex(["A Model of the Heart."]).holds("THE HEART: a model of it")
    True
    """

    def __init__(self, titles: Iterable[str]) -> None:
        self._titles = list({words for title in titles if (words := title_words(title))})
        self._titles_by_word: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._titles):
            for word in words:
                self._titles_by_word[word].append(number)

    @classmethod
    def of_corpus(cls, source: Path) -> TitleIndex:
        """The titles of a corpus in JSON lines; raises CorpusError where it cannot be read."""
        return cls(paper.title for paper in read_jsonl(source, lambda text: [text]))

    def holds(self, title: str) -> bool:
        """Whether the set has this title or a near duplicate of it."""
        words = title_words(title)
        # A near duplicate has more than MAX_JACCARD of the words, so it has one of any others than so many:
        # of the rarest. Frequent words would lead to most of a large set.
        numbers = (self._titles_by_word.get(word, []) for word in words)
        rarest = sorted(numbers, key=len)[: len(words) - int(MAX_JACCARD * len(words))]
        return any(
            len(words & self._titles[number]) / len(words | self._titles[number]) > MAX_JACCARD
            for number in {number for postings in rarest for number in postings}
        )
