"""Abstracts that the tagger learns from: CSAbstruct's, unlabelled ones, and the encoder's states of both."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.corpus import read_jsonl, read_records
from qbe.corpus.sentences import split_sentences
from qbe.corpus.titles import TitleIndex
from qbe.errors import CorpusError
from qbe.models.encoder import Encoder
from qbe.models.pooling import Floats
from qbe.types import FacetProbabilities, Paper, Sentence
from qbe.util.parallel import ordered_map

LABELS = FacetProbabilities._fields
"""The five labels; a label's number is its position here."""

_NUMBERS = {label: number for number, label in enumerate(LABELS)}

SPLITS = ("train", "dev", "test")


class LabelledAbstract(NamedTuple):
    """An abstract's sentences, their labels (positions in LABELS), and the confidence of the annotators.

    Confidences are in (0, 1]: the share of the (quality-weighted) votes for the label.
    """

    sentences: tuple[str, ...]
    labels: tuple[int, ...]
    confidences: tuple[float, ...]


def read_csabstruct(folder: Path) -> Mapping[str, list[LabelledAbstract]]:
    """The abstracts of ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl`` in a folder, by split.

    Raises CorpusError for a file that is absent or not in the release's format.

    >>> record = '{"sentences": ["We cut it."], "labels": ["method"], "confs": [0.75]}'
    >>> for split in SPLITS:
    ...     _ = Path(f"{split}.jsonl").write_text(record)
    >>> read_csabstruct(Path())["dev"]
    [LabelledAbstract(sentences=('We cut it.',), labels=(2,), confidences=(0.75,))]
    """
    return {split: _read(folder / f"{split}.jsonl") for split in SPLITS}


def _read(path: Path) -> list[LabelledAbstract]:
    abstracts = [_abstract(record, where) for where, record in read_records(path)]
    if not abstracts:
        raise CorpusError(f"{path}: expected abstracts, found none; give the folder of CSAbstruct's release")
    return abstracts


def _abstract(record: Mapping[str, Any], where: str) -> LabelledAbstract:
    try:
        sentences, labels = tuple(record["sentences"]), tuple(map(_NUMBERS.__getitem__, record["labels"]))
        confidences = tuple(map(float, record.get("confs") or [1.0] * len(labels)))
    except (KeyError, ValueError, TypeError) as error:
        raise CorpusError(
            f"{where}: expected sentences, labels ({', '.join(LABELS)}) and confs, found {error!r}; "
            "give the folder of CSAbstruct's release"
        ) from error
    if not len(sentences) == len(labels) == len(confidences) or not sentences:
        counts = json.dumps([len(sentences), len(labels), len(confidences)])
        raise CorpusError(
            f"{where}: expected one label and one confidence a sentence, found {counts}; correct the record"
        )
    return LabelledAbstract(sentences, labels, confidences)


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


class Tokens(NamedTuple):
    """The first window of a paper.

    ``ids`` (tokens,) are its tokens and ``spans`` the first token and the end of each sentence; sentences
    that did not fit are left out. ``numbers`` (tokens, layers, dimension) int8 times ``scales`` (tokens,
    layers, 1) float16 are the encoder's hidden states, in one byte per number.

    >>> Tokens(np.int32([101]), (), np.int8([[[127, -64]]]), np.float16([[[0.5]]])).states.tolist()
    [[[63.5, -32.0]]]
    """

    ids: NDArray[np.int32]
    spans: tuple[tuple[int, int], ...]
    numbers: NDArray[np.int8]
    scales: NDArray[np.float16]

    @property
    def states(self) -> Floats:
        """The encoder's hidden states (tokens, layers, dimension)."""
        states: Floats = self.numbers.astype(np.float32) * self.scales.astype(np.float32)
        return states


class _StateRecorder:
    """A `qbe.models.encoder.TokenStateHook` that keeps the hidden states of the first window."""

    width = 0

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.first: tuple[NDArray[np.int8], NDArray[np.float16]] | None = None

    def compute(self, states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
        """Keep the states of a paper's first window; the result (sentences, 0) is empty."""
        if self.first is None:
            stacked = np.stack(states, axis=1)
            scales = np.maximum(np.abs(stacked).max(axis=2, keepdims=True) / 127, 1e-6).astype(np.float16)
            numbers = np.rint(stacked / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
            self.first = numbers, scales
        return np.zeros((len(spans), 0), np.float32)


def record_states(encoder: Encoder, layers: Sequence[int], papers: Iterable[Paper]) -> list[Tokens]:
    """Tokens and states of each paper, in order; ``encoder.threads`` papers are encoded at a time."""

    def record_paper(paper: Paper) -> Tokens:
        recorder = _StateRecorder(layers)
        encoder.encode_paper(paper, recorder)
        assert recorder.first is not None
        window = next(encoder.windows(paper))
        return Tokens(np.array(window.ids, np.int32), tuple(window.spans), *recorder.first)

    return list(ordered_map(record_paper, papers, encoder.threads))
