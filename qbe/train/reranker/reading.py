"""Papers as the facet cross-encoder reads them in training: tokens, sentences, facets."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from qbe.corpus import read_jsonl
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import CorpusError
from qbe.tag.tagger import Tagger
from qbe.text.split import split_sentences
from qbe.train.reranker.tagged import tagged
from qbe.types import Facet, Paper, Sentence

log = logging.getLogger(__name__)


class Reading(NamedTuple):
    """A paper's first window.

    ``ids`` (tokens,) int64. ``pooling`` (sentences + facets + 1, tokens) float32 averages token states: over
    each sentence, over each facet's sentences together, over everything. ``facets`` holds, for each facet,
    the positions (int64) of its sentences in the window; all of them where it has none.
    """

    ids: Tensor
    pooling: Tensor
    facets: tuple[Tensor, ...]

    @property
    def sentences(self) -> int:
        """How many sentences the window holds."""
        return len(self.pooling) - len(self.facets) - 1

    def tokens_of(self, facet: int) -> Tensor:
        """Which tokens (tokens,) bool lie in a facet's sentences."""
        return self.pooling[self.sentences + facet] > 0


def collect(
    source: Path,
    wanted: Iterable[str],
    encoder: Encoder,
    tagger: Tagger,
    max_tokens: int,
    kept: Path | None = None,
) -> dict[str, tuple[Paper, Reading]]:
    """The papers of a corpus that are wanted, by id, as papers and as the network reads them.

    Arguments and errors are those of `collect_papers`.
    """
    papers = collect_papers(source, wanted, encoder, tagger, kept)
    return {
        identity: (paper, read(paper, encoder.tokenizer, max_tokens)) for identity, paper in papers.items()
    }


def collect_papers(
    source: Path, wanted: Iterable[str], encoder: Encoder, tagger: Tagger, kept: Path | None = None
) -> dict[str, Paper]:
    """The papers of a corpus that are wanted, by id, their facets predicted (and kept in a file, if given).

    Raises CorpusError where the corpus lacks some.
    """
    missing = set(wanted)
    log.info("reading %d papers from %s", len(missing), source)
    unsplit = (paper for paper in read_jsonl(source, lambda text: [text]) if paper.paper_id in missing)
    chosen = {paper.paper_id: replace(paper, sentences=_split(paper)) for paper in unsplit}
    missing -= set(chosen)
    if missing:
        raise CorpusError(
            f"{source}: expected all papers of the graded pairs, found none of {len(missing)}, such as "
            f"{min(missing)}; give the corpus that the pairs were made from"
        )
    return tagged(chosen, encoder, tagger, kept)


def _split(paper: Paper) -> tuple[Sentence, ...]:
    return tuple(map(Sentence, split_sentences(paper.abstract)))


def read(paper: Paper, tokenizer: PaperTokenizer, max_tokens: int) -> Reading:
    """A labelled paper's first window of at most ``max_tokens``."""
    window = tokenizer.first_window(paper, max_tokens)
    count, length = len(window.spans), len(window.ids)
    positions = [
        [position for position in paper.facet_positions(facet)[0] if position < count] or range(count)
        for facet in Facet
    ]
    pooling = torch.zeros(count + len(positions) + 1, length)
    for row, (begin, end) in enumerate(window.spans):
        pooling[row, begin:end] = 1
    for number, chosen in enumerate(positions):
        pooling[count + number] = pooling[list(chosen)].sum(0)
    pooling[-1] = 1
    pooling /= pooling.sum(1, keepdim=True)
    ids = torch.tensor(window.ids)
    return Reading(ids, pooling, tuple(torch.tensor(list(chosen)) for chosen in positions))
