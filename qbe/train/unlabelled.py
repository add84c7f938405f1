"""Papers that models are evaluated on, by title, and a sample of other abstracts without labels."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from qbe.corpus import read_jsonl
from qbe.errors import CorpusError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

MAX_JACCARD = 0.7
"""Titles of a higher Jaccard similarity (words in both / words in either) count as the same paper's."""

MIN_SENTENCES, MAX_SENTENCES = 3, 20
"""Shorter abstracts have no structure to learn; longer texts are mostly not abstracts."""


def sample_papers(source: str | Path, evaluated: TitleIndex, count: int, seed: int) -> list[Paper]:
    """Papers of a corpus chosen at random, without those that have the title of an ``evaluated`` one.

    The sample depends on the corpus and the seed only; a larger one holds every smaller one. Raises
    CorpusError where the corpus has fewer of them.

    >>> from qbe.datasets.embedded import copy_sample
    >>> _ = copy_sample("sample")
    >>> [paper.paper_id for paper in sample_papers("sample/corpus.jsonl", TitleIndex([]), 3, seed=0)]
    ['s041', 's036', 's126']
    """
    rng = random.Random(seed)
    shuffled = sorted(
        (rng.random(), i, paper) for i, paper in enumerate(read_jsonl(source, lambda text: [text]))
    )
    papers = list(_suitable((paper for _, _, paper in shuffled), evaluated, count))
    if len(papers) < count:
        raise CorpusError(
            f"{source}: expected {count:,} abstracts of {MIN_SENTENCES} to {MAX_SENTENCES} sentences beside "
            f"those left out, found {len(papers):,}; give a larger corpus"
        )
    return papers


def _suitable(papers: Iterable[Paper], evaluated: TitleIndex, count: int) -> Iterator[Paper]:
    for paper in papers:
        if count <= 0:
            return
        sentences = tuple(map(Sentence, split_sentences(paper.abstract)))
        if MIN_SENTENCES <= len(sentences) <= MAX_SENTENCES and not evaluated.holds(paper.title):
            yield Paper(paper.paper_id, paper.title, sentences)
            count -= 1


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
        shared = Counter(number for word in words for number in self._titles_by_word.get(word, ()))
        return any(
            common / len(words | self._titles[number]) > MAX_JACCARD for number, common in shared.items()
        )
