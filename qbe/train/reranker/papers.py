"""The papers of graded pairs: read from a corpus, with predicted facets, and tokenized."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qbe.corpus import read_jsonl
from qbe.corpus.sentences import split_sentences
from qbe.corpus.titles import TitleIndex
from qbe.errors import CorpusError
from qbe.models.encode.encoder import Encoder
from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.registry import BASE_ENCODER
from qbe.models.tag.tagger import Tagger, TaggingEncoder
from qbe.runs import GradedLists, read_graded_pairs
from qbe.train.artifacts import Sources
from qbe.train.correlation import check_dev
from qbe.train.pairs import joined_lists, papers_of, without
from qbe.types import Facet, Paper, Sentence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readers:
    """The encoder and the tagger by which the facets of papers are predicted: the base encoder's."""

    encoder: Encoder
    tagger: Tagger

    @classmethod
    def open(cls, threads: int) -> Readers:
        """Open both."""
        return cls(Encoder.open(BASE_ENCODER, threads=threads), Tagger.open())

    @property
    def identities(self) -> dict[str, Any]:
        """What they are, for the note in the work folder."""
        return {"encoder": self.encoder.files.identity, "tagger": self.tagger.identity}


class GradedPapers(NamedTuple):
    """Graded lists to train on, those of dev by the name of the file, and their labelled papers by id."""

    train: GradedLists
    dev: Mapping[str, GradedLists]
    papers: Mapping[str, Paper]


def read_graded_papers(sources: Sources, readers: Readers) -> GradedPapers:
    """Graded lists with their papers out of a corpus.

    Queries of dev and papers to leave out are not trained on. Raises FileFormatError for pairs and
    CorpusError for papers that cannot be read, and for pairs of dev that no correlation can be computed with.
    """
    dev = {f"{file.parent.name}/{file.name}": read_graded_pairs(file) for file in sources.dev}
    for file, lists in zip(sources.dev, dev.values(), strict=True):
        check_dev(lists, file)
    train = without(
        joined_lists(sources.train), frozenset(query for lists in dev.values() for query in lists)
    )
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    ids = papers_of(train, *dev.values())
    papers = collect_papers(sources.corpus, ids, readers)
    excluded = frozenset(paper_id for paper_id, paper in papers.items() if evaluated.holds(paper.title))
    train = without(train, excluded)
    log.info("training on %d lists; %d papers, %d left out", len(train), len(papers), len(excluded))
    return GradedPapers(train, dev, papers)


def collect_papers(source: Path, ids: Iterable[str], readers: Readers) -> dict[str, Paper]:
    """The papers of a corpus with these ids, by id, each sentence with the facet that is predicted.

    Raises CorpusError where the corpus lacks some of them.
    """
    missing = set(ids)
    log.info("looking for %d papers in %s", len(missing), source)
    unsplit = (paper for paper in read_jsonl(source, lambda text: [text]) if paper.paper_id in missing)
    papers = {paper.paper_id: replace(paper, sentences=_split(paper)) for paper in unsplit}
    missing -= set(papers)
    if missing:
        raise CorpusError(
            f"{source}: expected all papers of the graded pairs, found none of {len(missing)}, such as "
            f"{min(missing)}; give the corpus that the pairs were made from"
        )
    log.info("predicting facets")
    tagging = TaggingEncoder(readers.encoder, readers.tagger, "predicted")
    return {paper.paper_id: paper for paper, _ in tagging.encode(papers.values())}


def _split(paper: Paper) -> tuple[Sentence, ...]:
    return tuple(map(Sentence, split_sentences(paper.abstract)))


class TokenizedPaper(NamedTuple):
    """A paper's first window.

    ``ids`` (tokens,) int64. ``pooling`` (sentences + facets + 1, tokens) float32 averages token states: over
    each sentence, over each facet's sentences together, over all tokens. ``facets`` holds, for each facet,
    the positions (int64) of its sentences in the window; of all sentences where it has none.

    >>> pooling = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> positions = (torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))
    >>> paper = TokenizedPaper(torch.tensor([11, 12]), pooling, positions)
    >>> paper.sentences, paper.facet_tokens(2)
    (2, tensor([False,  True]))
    """

    ids: Tensor
    pooling: Tensor
    facets: tuple[Tensor, ...]

    @property
    def sentences(self) -> int:
        """The number of sentences in the window."""
        return len(self.pooling) - len(self.facets) - 1

    def facet_tokens(self, facet: int) -> Tensor:
        """A mask (tokens,) bool of the sentences of a facet, given by its place in `Facet`."""
        return self.pooling[self.sentences + facet] > 0


def tokenize(paper: Paper, tokenizer: PaperTokenizer, max_tokens: int) -> TokenizedPaper:
    """The first window of a labelled paper, of at most ``max_tokens``."""
    window = tokenizer.first_window(paper, max_tokens)
    count, length = len(window.spans), len(window.ids)
    positions = [
        [position for position in paper.facet_positions(facet)[0] if position < count] or range(count)
        for facet in Facet
    ]
    pooling = torch.zeros(count + len(positions) + 1, length)
    for row, (begin, end) in enumerate(window.spans):
        pooling[row, begin:end] = 1
    for number, rows in enumerate(positions):
        pooling[count + number] = pooling[list(rows)].sum(0)
    pooling[-1] = 1
    pooling /= pooling.sum(1, keepdim=True)
    ids = torch.tensor(window.ids)
    return TokenizedPaper(ids, pooling, tuple(torch.tensor(list(rows)) for rows in positions))


class Layout(NamedTuple):
    """How many sentences each paper of a batch has, ``counts`` (papers,) int64, the paper of each sentence,
    ``places`` (sentences,) int64, and its facets, ``marked`` (3, sentences) bool.
    """

    counts: Tensor
    places: Tensor
    marked: Tensor


def layout_of(papers: Sequence[TokenizedPaper], device: torch.device | str = "cpu") -> Layout:
    """The layout of some papers' sentences.

    >>> rows = (torch.tensor([0]), torch.tensor([1]), torch.tensor([0, 1]))
    >>> paper = TokenizedPaper(torch.tensor([1, 2]), torch.ones(6, 2), rows)
    >>> layout_of([paper, paper]).places, layout_of([paper]).marked.int().tolist()
    (tensor([0, 0, 1, 1]), [[1, 0], [0, 1], [1, 1]])
    """
    counts = torch.tensor([paper.sentences for paper in papers])
    marked = torch.zeros(len(Facet), int(counts.sum()), dtype=torch.bool)
    begin = 0
    for paper in papers:
        for facet, positions in enumerate(paper.facets):
            marked[facet, begin + positions] = True
        begin += paper.sentences
    places = torch.repeat_interleave(torch.arange(len(papers)), counts)
    return Layout(counts, places.to(device), marked.to(device))
