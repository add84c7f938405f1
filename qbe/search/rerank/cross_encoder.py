"""Any exported BERT-family classifier of pairs as a reranker: it reads query and candidate as one text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from qbe.models.cards import PAIR_INPUTS, SCORE, RerankerFiles
from qbe.models.gpu import batches, padded, pair_batches
from qbe.models.pooling import EncodedAspect
from qbe.models.session import CPU, HALF, check_precision, chosen_device, open_session
from qbe.models.tokenizer import PaperTokenizer, SpecialTokens
from qbe.search.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.types import Paper
from qbe.util.parallel import Memo, Workers

_BATCH_TOKENS = 1 << 15
"""Tokens of a batch, padding included, in fp16."""

SIDE_TOKENS = 256
"""Tokens of query and of candidate that are read, special ones included (Nogueira et al., 2020, sec. 4)."""


class Pair(NamedTuple):
    """Token ids, and for each its side: 0 up to the first [SEP], 1 after it."""

    ids: list[int]
    types: list[int]


class CrossEncoder:
    """Scores ``[CLS] query title. query sentences [SEP] candidate title. abstract [SEP]`` in one pass
    (Nogueira et al., 2020, section 4).

    The query's sentences are those of its aspect, in the order of the abstract. One pair is one call of a
    single-threaded session, and the workers score several pairs at a time: see `qbe.models.encoder` for
    why. In fp16, which is for GPUs, pairs of similar length are scored side by side. It compares no
    sentences: its scores have no match.
    """

    needs_vectors = False
    takes_whole_abstracts = True

    def __init__(self, files: RerankerFiles, workers: Workers | None = None, device: str = CPU) -> None:
        """Load model and tokenizer, the model on one of `qbe.models.session.DEVICES`.

        Raises ModelError when a file is missing or damaged, UsageError for int8 on a GPU,
        MissingDependencyError for a device that cannot be used, and for fp16 without onnx.
        """
        metadata = files.metadata
        device, self._batched = chosen_device(device), files.precision == HALF
        check_precision(files.precision, device)
        files.verify()
        self.name = metadata.name
        self._workers = workers or Workers()
        tokens = min(SIDE_TOKENS, metadata.max_tokens // 2)
        self._query_tokens = metadata.query_tokens or tokens
        self._candidate_tokens = metadata.candidate_tokens or tokens
        self._inputs = PAIR_INPUTS if metadata.token_types else PAIR_INPUTS[:-1]
        model = pair_batches(files) if self._batched else files.model
        self._session = open_session(model, device, inputs=self._inputs, outputs=[SCORE])
        self._tokenizer = PaperTokenizer(files.tokenizer)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.search.rerank.reranker.Reranker.batch_score`."""
        queries = [query_side(self._tokenizer, each.query, self._query_tokens) for each in requests]
        pairs = [(number, paper) for number, request in enumerate(requests) for paper in request.papers]
        # The longest first, so that no thread is left alone with a long one at the end.
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][1].title) - len(pairs[i][1].abstract))
        candidates = Memo(self._candidate)
        if self._batched:
            rows = [
                pair(queries[number], candidates(paper), self._tokenizer.special) for number, paper in pairs
            ]
            in_order = (RerankScore(score) for score in self._score_side_by_side(rows, progress))
            return [list(islice(in_order, len(request.papers))) for request in requests]
        computed = self._workers.map(
            lambda i: self._score(queries[pairs[i][0]], candidates(pairs[i][1])), order
        )
        scores = [0.0] * len(pairs)
        for i, score in zip(order, computed, strict=True):
            scores[i] = score
            if progress:
                progress(1)
        in_order = (RerankScore(score) for score in scores)
        return [list(islice(in_order, len(request.papers))) for request in requests]

    def _candidate(self, paper: Paper) -> list[int]:
        return candidate_side(self._tokenizer, paper, self._candidate_tokens)

    def _score_side_by_side(self, pairs: Sequence[Pair], progress: Progress | None) -> list[float]:
        """The scores of pairs, those of similar length in one call."""
        scores = [0.0] * len(pairs)
        for places in batches([len(each.ids) for each in pairs], _BATCH_TOKENS):
            some = [pairs[place] for place in places]
            for place, score in zip(places, self._run(some, padded(len(some[0].ids))), strict=True):
                scores[place] = score
            if progress:
                progress(len(places))
        return scores

    def _score(self, query: Sequence[int], candidate: Sequence[int]) -> float:
        row = pair(query, candidate, self._tokenizer.special)
        return self._run([row], len(row.ids))[0]

    def _run(self, pairs: Sequence[Pair], length: int) -> list[float]:
        """The scores of pairs, padded to a length, in one call."""
        arrays = {name: np.zeros((len(pairs), length), np.int64) for name in PAIR_INPUTS}
        arrays["input_ids"].fill(self._tokenizer.pad)
        for row, (ids, types) in enumerate(pairs):
            for name, values in zip(PAIR_INPUTS, (ids, [1] * len(ids), types), strict=True):
                arrays[name][row, : len(ids)] = values
        (scores,) = self._session.run([SCORE], {name: arrays[name] for name in self._inputs})
        computed: list[float] = scores.tolist()
        return computed


def query_side(tokenizer: PaperTokenizer, query: EncodedAspect, tokens: int) -> list[int]:
    """The token ids of a query: title and sentences, cut to ``tokens`` less [CLS] and [SEP]."""
    paper = query.aspect.paper
    texts = paper.texts(sorted(query.positions))
    return _side(tokenizer, paper.title, texts, tokens - 2)


def candidate_side(tokenizer: PaperTokenizer, paper: Paper, tokens: int) -> list[int]:
    """The token ids of a candidate: title and abstract, cut to ``tokens`` less [SEP]."""
    return _side(tokenizer, paper.title, paper.texts(range(len(paper.sentences))), tokens - 1)


def _side(tokenizer: PaperTokenizer, title: str, sentences: Iterable[str], room: int) -> list[int]:
    return side(tokenizer.ids(closed(title)), [tokenizer.ids(text) for text in sentences], room)


def closed(title: str) -> str:
    """A title that ends as a sentence does, so that the text after it begins a new one.

    >>> closed("On stone"), closed("Why stone?")
    ('On stone.', 'Why stone?')
    """
    title = title.rstrip()
    return title if not title or title[-1] in ".?!:" else f"{title}."


def side(title: Sequence[int], sentences: Sequence[Sequence[int]], room: int) -> list[int]:
    """Title and sentences, cut at the end to ``room`` tokens, so that the title is cut last.

    >>> side([11, 12], [[13, 14], [15, 16]], room=5)
    [11, 12, 13, 14, 15]
    """
    ids = list(title)
    for sentence in sentences:
        ids.extend(sentence)
    return ids[:room]


def pair(query: Sequence[int], candidate: Sequence[int], special: SpecialTokens) -> Pair:
    """Both sides in one row.

    >>> pair([11, 12], [13], SpecialTokens(cls=101, sep=102, unk=100))
    Pair(ids=[101, 11, 12, 102, 13, 102], types=[0, 0, 0, 0, 1, 1])
    """
    first, second = [special.cls, *query, special.sep], [*candidate, special.sep]
    return Pair(first + second, [0] * len(first) + [1] * len(second))
