"""Abstracts without labels to learn from, none of them of a paper that is evaluated on."""

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
"""Titles that share a larger part of their words are taken for one paper."""

MIN_SENTENCES, MAX_SENTENCES = 3, 20
"""Shorter abstracts show no structure; longer ones are mostly not abstracts."""


def sample_papers(source: str | Path, evaluated: Iterable[str], count: int, seed: int) -> list[Paper]:
    """Papers of a corpus chosen at random, without those whose title is like one of ``evaluated``.

    The sample depends on the corpus and the seed only; a larger one holds every smaller one. Raises
    CorpusError where the corpus has fewer of them.
    """
    ranks = random.Random(seed)
    seen = TitleIndex(evaluated)
    chosen = sorted(
        (ranks.random(), i, paper) for i, paper in enumerate(read_jsonl(source, lambda text: [text]))
    )
    papers = list(_suitable((paper for _, _, paper in chosen), seen, count))
    if len(papers) < count:
        raise CorpusError(
            f"{source}: expected {count:,} abstracts of {MIN_SENTENCES} to {MAX_SENTENCES} sentences beside "
            f"those left out, found {len(papers):,}; give a larger corpus"
        )
    return papers


def _suitable(papers: Iterable[Paper], seen: TitleIndex, count: int) -> Iterator[Paper]:
    for paper in papers:
        if count <= 0:
            return
        sentences = tuple(map(Sentence, split_sentences(paper.abstract)))
        if MIN_SENTENCES <= len(sentences) <= MAX_SENTENCES and not seen.holds(paper.title):
            yield Paper(paper.paper_id, paper.title, sentences)
            count -= 1


def title_words(title: str) -> frozenset[str]:
    """The words of a title, lower case, without punctuation."""
    return frozenset(re.findall(r"\w+", title.lower()))


class TitleIndex:
    """Titles, to ask whether another is the same but for a few words (unigram Jaccard over MAX_JACCARD)."""

    def __init__(self, titles: Iterable[str]) -> None:
        self._titles = list({words for title in titles if (words := title_words(title))})
        self._holding: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._titles):
            for word in words:
                self._holding[word].append(number)

    def holds(self, title: str) -> bool:
        """Whether a title is one of these, or nearly."""
        words = title_words(title)
        shared = Counter(number for word in words for number in self._holding.get(word, ()))
        return any(
            common / len(words | self._titles[number]) > MAX_JACCARD for number, common in shared.items()
        )
