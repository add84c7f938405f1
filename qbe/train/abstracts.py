"""Abstracts that the facet tagger learns from: CSAbstruct's, unlabelled ones, and those with headings."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import read_jsonl, read_records
from qbe.corpus.identity import TitleIndex, normalized_title
from qbe.corpus.sentences import split_sentences, unsplit
from qbe.errors import CorpusError
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

LABELS = FacetProbabilities._fields
SPLITS = ("train", "dev", "test")
MIN_SENTENCES, MAX_SENTENCES = 3, 20  # shorter abstracts have no structure; longer ones are mostly none


class LabelledAbstract(NamedTuple):
    """An abstract's sentences, their labels (positions in LABELS), shares of annotators' votes for each."""

    sentences: tuple[str, ...]
    labels: tuple[int, ...]
    confidences: tuple[float, ...]

    def paper(self) -> Paper:
        return Paper("", "", tuple(map(Sentence, self.sentences)))


def read_csabstruct(folder: Path) -> Mapping[str, list[LabelledAbstract]]:
    """Read the abstracts of CSAbstruct's train.jsonl, dev.jsonl and test.jsonl in a folder, by split."""
    splits: dict[str, list[LabelledAbstract]] = {}
    numbered = {label: number for number, label in enumerate(LABELS)}
    for split in SPLITS:
        path = folder / f"{split}.jsonl"
        splits[split] = []
        for where, record in read_records(path):
            try:
                sentences = tuple(record["sentences"])
                numbers = tuple(map(numbered.__getitem__, record["labels"]))
                confidences = tuple(map(float, record.get("confs") or [1.0] * len(numbers)))
            except (KeyError, ValueError, TypeError) as error:
                raise CorpusError(
                    f"{where}: expected sentences, labels ({', '.join(LABELS)}) and confs, found {error!r}; "
                    "give the folder of CSAbstruct's release"
                ) from error
            counts = [len(each) for each in (sentences, numbers, confidences)]
            if len(set(counts)) > 1 or not sentences:
                raise CorpusError(
                    f"{where}: expected one label and one confidence a sentence, found {counts}; correct the "
                    "record"
                )
            splits[split].append(LabelledAbstract(sentences, numbers, confidences))
        if not splits[split]:
            raise CorpusError(
                f"{path}: expected abstracts, found none; give the folder of CSAbstruct's release"
            )
    return splits


def sample_papers(source: str | Path, evaluated: TitleIndex, count: int, seed: int) -> list[Paper]:
    """Choose papers of a corpus at random, without those that have the title of an ``evaluated`` one; a
    larger sample holds every smaller one of the seed.
    """
    rng, papers = random.Random(seed), list[Paper]()
    for paper in sorted(read_jsonl(source, unsplit), key=lambda _: rng.random()):
        if len(papers) >= count:
            break
        sentences = tuple(map(Sentence, split_sentences(paper.abstract)))
        if MIN_SENTENCES <= len(sentences) <= MAX_SENTENCES and not evaluated.holds(paper.title):
            papers.append(Paper(paper.paper_id, paper.title, sentences))
    if len(papers) < count:
        raise CorpusError(
            f"{source}: expected {count:,} abstracts of {MIN_SENTENCES} to {MAX_SENTENCES} sentences beside "
            f"those left out, found {len(papers):,}; give a larger corpus"
        )
    return papers


def headed_papers(sources: Iterable[Path], evaluated: TitleIndex) -> list[Paper]:
    """Read structured abstracts with methods, each once, whose sentences have the labels of their headings,
    but for papers that have the title of an ``evaluated`` one.
    """
    papers: dict[str, Paper] = {}
    for source in sources:
        for paper in read_jsonl(source, lambda abstract: [abstract]):  # as `unsplit`, but by headings
            parts = paper.sentences
            if Facet.METHOD not in (part.facet for part in parts) or evaluated.holds(paper.title):
                continue
            split = tuple(part._replace(text=text) for part in parts for text in split_sentences(part.text))
            if MIN_SENTENCES <= len(split) <= MAX_SENTENCES:
                papers.setdefault(normalized_title(paper.title), replace(paper, sentences=split))
        if not papers:
            told = "expected structured abstracts (Background:, Methods:), found none; give a larger corpus"
            raise CorpusError(f"{source}: {told}")
    return list(papers.values())
