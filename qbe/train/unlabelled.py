"""A sample of abstracts without labels, apart from papers that models are evaluated on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from qbe.corpus import read_jsonl
from qbe.corpus.titles import TitleIndex
from qbe.errors import CorpusError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

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
