"""Pairs of a paper and a candidate of BM25 that it cites or not, and the pair reranker that learns from them.

Nogueira, Jiang, Cho and Lin, *Evaluating Pretrained Transformer Models for Citation Recommendation* (BIR
2020), sections 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.cite.links import Evidence, Ints
from qbe.errors import CorpusError, UsageError
from qbe.index.reader import IndexReader
from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.export.pytorch import load_model
from qbe.search.filters import FilterCache, PaperFilter
from qbe.search.first_stages import BM25Stage
from qbe.search.rerankers import SIDE_TOKENS, candidate_side, pair, query_side
from qbe.train.citation.data import CitationFigures, RankedList, citation_figures, query_at
from qbe.train.trainer import Schedule
from qbe.train.weights import adamw
from qbe.util.parallel import Workers

T = TypeVar("T")
CLASSES = ("natural", "balanced", "all-cited")
"""Which candidates are learned from: BM25's best as they are, as many that are not cited as are cited, or
BM25's best and whatever else the query cites.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a pair reranker learns whom papers cite.

    The ``candidates`` best of BM25, by title and abstract, are learned from as ``classes`` says (see
    CLASSES); ``query_tokens`` and ``candidate_tokens`` of either text are read, special tokens included. A
    step has ``batch`` pairs. AdamW. F1@20 is measured ``evaluations`` times, on ``dev_queries`` whose
    ``dev_depth`` best candidates of BM25 are reranked; after ``patience`` measurements that are no better,
    training ends.
    """

    query_tokens: int = SIDE_TOKENS
    candidate_tokens: int = SIDE_TOKENS
    classes: str = "natural"
    candidates: int = 10
    epochs: float = 1.0
    batch: int = 16
    learning_rate: float = 5e-5
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.1
    evaluations: int = 8
    patience: int = 3
    dev_queries: int = 60
    dev_depth: int = 40

    def __post_init__(self) -> None:
        """Raise UsageError for values out of range."""
        if self.classes not in CLASSES:
            raise UsageError(f"expected `classes` of {', '.join(CLASSES)}, found {self.classes!r}")
        for name in ("query_tokens", "candidate_tokens"):
            if getattr(self, name) < 8:
                raise UsageError(f"expected `{name}` of at least 8, found {getattr(self, name)}")
        for name in ("candidates", "batch", "evaluations", "dev_queries"):
            if getattr(self, name) < 1:
                raise UsageError(f"expected `{name}` of at least 1, found {getattr(self, name)}")
        for name in ("epochs", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"expected a positive number as `{name}`, found {getattr(self, name)}")

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe; what it calls an epoch lasts from one measurement to the next."""
        return Schedule(self.evaluations, self.clip, self.patience, self.warm_up)


class Candidates(NamedTuple):
    """A query, by its row in the index, its candidates, best first (n,), and what it cites (m,)."""

    query: int
    rows: Ints
    cited: Ints

    @property
    def labels(self) -> list[bool]:
        """Whether each candidate is cited."""
        labels: list[bool] = np.isin(self.rows, self.cited).tolist()
        return labels


def bm25_candidates(
    reader: IndexReader, workers: Workers, cited: Mapping[int, Ints], depth: int
) -> list[Candidates]:
    """For each query its best candidates by BM25, title and abstract as the query; none is younger than it.

    Raises IndexFormatError for an index without postings.
    """
    stage, evidence, filters = BM25Stage(reader, workers, "abstract"), Evidence(reader), FilterCache(reader)
    found = []
    for row in sorted(cited):
        query = query_at(reader, evidence, row)
        allowed = None if query.year is None else filters.of(PaperFilter(before=query.year)).selection
        (hits,) = stage.batch_search([query.encoded], depth + 1, [None], allowed)
        rows = [reader.papers.row(hit.paper_id) for hit in hits]
        best = [each for each in rows if each != row][:depth]
        found.append(Candidates(row, np.array(best, np.int64), cited[row]))
    return found


def chosen_candidates(candidates: Sequence[Candidates], classes: str) -> list[Candidates]:
    """The candidates to learn from, as ``classes`` says (see CLASSES).

    >>> best = [Candidates(9, np.array([1, 2, 3, 4]), np.array([2, 7]))]
    >>> [sorted(chosen_candidates(best, classes)[0].rows.tolist()) for classes in ("natural", "all-cited")]
    [[1, 2, 3, 4], [1, 2, 3, 4, 7]]
    >>> len(chosen_candidates(best, "balanced")[0].rows)
    2
    """
    if classes == "natural":
        return list(candidates)
    if classes == "all-cited":
        return [each._replace(rows=np.union1d(each.rows, each.cited)) for each in candidates]
    rng = np.random.default_rng(0)
    balanced = []
    for each in candidates:
        labels = np.array(each.labels, np.bool_)
        others = rng.permutation(each.rows[~labels])[: labels.sum()]
        balanced.append(each._replace(rows=np.concatenate([each.rows[labels], others])))
    return balanced


class Sides:
    """The token ids of papers as queries and as candidates, made when they are first asked for."""

    def __init__(self, reader: IndexReader, tokenizer: PaperTokenizer, recipe: Recipe) -> None:
        self._reader, self._tokenizer, self._recipe = reader, tokenizer, recipe
        self._evidence = Evidence(reader)
        self._known: dict[tuple[bool, int], list[int]] = {}

    def pair(self, query: int, candidate: int) -> tuple[list[int], list[int]]:
        """Token ids and sides of the papers at two rows, as `qbe.search.rerankers.pair` has them."""
        return pair(
            self._side(query, is_query=True), self._side(candidate, is_query=False), self._tokenizer.special
        )

    def length(self, query: int, candidate: int) -> int:
        """The number of tokens of a pair."""
        return len(self._side(query, is_query=True)) + len(self._side(candidate, is_query=False)) + 3

    def _side(self, row: int, *, is_query: bool) -> list[int]:
        key = (is_query, row)
        if key not in self._known:
            if is_query:
                encoded = query_at(self._reader, self._evidence, row).encoded
                self._known[key] = query_side(self._tokenizer, encoded, self._recipe.query_tokens)
            else:
                paper = self._reader.papers[row]
                self._known[key] = candidate_side(self._tokenizer, paper, self._recipe.candidate_tokens)
        return self._known[key]


class PairNetwork(nn.Module):
    """A BERT-family encoder under a classifier of pairs; what the folder lacks of the latter is random.

    Matrix products run in ``dtype``. Attention has no dropout, without which it is twice as fast on a CPU.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        """Load the model in ``folder``; raises ModelError when it cannot be loaded."""
        from transformers.utils.logging import disable_progress_bar, set_verbosity_error

        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]
        set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns that the classifier is random
        torch.manual_seed(0)
        settings = {"attn_implementation": None, "attention_probs_dropout_prob": 0.0}
        self.model, _ = load_model(
            folder, "AutoModelForSequenceClassification", "a BERT-family model", "`encoder`", **settings
        )
        self.dtype = dtype
        self.takes_types = int(getattr(self.model.config, "type_vocab_size", 0)) > 1

    def forward(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        """The log-odds (pairs,), float32, that the query cites the candidate."""
        longest = max(len(ids) for ids, _ in pairs)
        device = next(self.parameters()).device
        padding = int(self.model.config.pad_token_id or 0)
        ids = torch.full((len(pairs), longest), padding)
        types, mask = torch.zeros_like(ids), torch.zeros_like(ids)
        for number, (tokens, sides) in enumerate(pairs):
            ids[number, : len(tokens)] = torch.tensor(tokens)
            types[number, : len(tokens)] = torch.tensor(sides)
            mask[number, : len(tokens)] = 1
        inputs = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        if self.takes_types:
            inputs["token_type_ids"] = types.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            logits: Tensor = self.model(**inputs).logits
        logits = logits.float()
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


class CitedPair(NamedTuple):
    """A query and a candidate, by their rows, and whether the first cites the second."""

    query: int
    candidate: int
    is_cited: bool


_BUCKET = 32
"""Batches whose pairs are sorted by length together."""

_PART = 16
"""Pairs of a step that the network reads at a time."""


class PairTask:
    """A pair reranker that learns from pairs, by the cross-entropy of cited or not; its score is F1@20."""

    def __init__(
        self,
        network: PairNetwork,
        sides: Sides,
        recipe: Recipe,
        train: Sequence[Candidates],
        dev: Sequence[Candidates],
    ) -> None:
        """Raises CorpusError where no candidate is cited, or where all are."""
        self.network = network
        self._sides, self._recipe, self._dev = sides, recipe, dev
        self.pairs = [
            CitedPair(each.query, row, is_cited)
            for each in train
            for row, is_cited in zip(each.rows.tolist(), each.labels, strict=True)
        ]
        if len({each.is_cited for each in self.pairs}) < 2:
            raise CorpusError(
                "expected candidates of BM25 that are cited and others that are not, found one kind alone; "
                "give a larger collection"
            )
        steps = math.ceil(recipe.epochs * len(self.pairs) / recipe.batch)
        self.steps_per_epoch = math.ceil(steps / recipe.evaluations)

    def optimizer(self) -> torch.optim.Optimizer:
        """See `qbe.train.weights.adamw`."""
        return adamw(self.network, self._recipe.learning_rate, self._recipe.weight_decay)

    def batches(self, seed: int) -> Iterator[list[CitedPair]]:
        """The pairs of each step, each step's of about the same length."""
        rng, size = np.random.default_rng(seed), self._recipe.batch
        while True:
            order = rng.permutation(len(self.pairs)).tolist()
            for first in range(0, len(order), size * _BUCKET):
                bucket = [self.pairs[place] for place in order[first : first + size * _BUCKET]]
                bucket.sort(key=lambda each: self._sides.length(each.query, each.candidate))
                starts = range(0, len(bucket), size)
                for place in rng.permutation(len(starts)).tolist():
                    yield bucket[starts[place] : starts[place] + size]

    def losses(self, batch: list[CitedPair]) -> Iterator[Tensor]:
        """The mean cross-entropy of a step's pairs, in parts."""
        for first in range(0, len(batch), _PART):
            part = batch[first : first + _PART]
            scores = self._scores(part)
            labels = torch.tensor([float(each.is_cited) for each in part], device=scores.device)
            yield F.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / len(batch)

    def score(self) -> float:
        """F1@20 on dev."""
        return self.figures().f1

    def figures(self, *, reranked: bool = True) -> CitationFigures:
        """The figures on dev of the reranked candidates, or of BM25's order of them."""
        lists = []
        for each in self._dev:
            labels = np.array(each.labels, np.bool_)
            if reranked:
                labels = labels[np.argsort(-self._candidate_scores(each), kind="stable")]
            lists.append(RankedList(labels, len(each.cited)))
        return citation_figures(lists)

    @torch.no_grad()
    def _candidate_scores(self, candidates: Candidates) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        pairs = [CitedPair(candidates.query, row, is_cited=False) for row in candidates.rows.tolist()]
        order = sorted(range(len(pairs)), key=lambda place: self._sides.length(*pairs[place][:2]))
        scores = np.zeros(len(pairs), np.float32)
        for first in range(0, len(order), _PART):
            places = order[first : first + _PART]
            scores[places] = self._scores([pairs[place] for place in places]).cpu().numpy()
        return scores

    def _scores(self, pairs: Sequence[CitedPair]) -> Tensor:
        scores: Tensor = self.network([self._sides.pair(each.query, each.candidate) for each in pairs])
        return scores


def spread(items: Sequence[T], count: int) -> list[T]:
    """So many items at equal distances; all where there are fewer.

    >>> spread("abcdefghij", 3)
    ['a', 'd', 'g']
    """
    if count >= len(items):
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]
