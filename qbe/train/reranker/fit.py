"""Fitting a facet cross-encoder to graded lists."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from qbe.errors import CorpusError
from qbe.evaluate.crossed import CrossedAccuracy, accuracies
from qbe.graded_pairs import GradedLists, GradedPair
from qbe.rerank.facet_cross_encoder import Floats
from qbe.train import fitting
from qbe.train.fitting import Checkpoints, DevScore, LoopSettings
from qbe.train.reranker.correlation import mean_correlation, spearman
from qbe.train.reranker.loss import LOSSES, crossed_emphasis
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.recipe import Schedule
from qbe.train.reranker.tokenized import TokenizedPaper
from qbe.train.weights import Progress, trainable
from qbe.types import Facet


class GradedSplits(NamedTuple):
    """Graded lists to train on, and those of dev."""

    train: GradedLists
    dev: GradedLists


class CandidateScorer:
    """A network and tokenized papers: scores of a query's candidates.

    The hidden states below the trainable layers are computed once a paper, when they are first needed.
    """

    def __init__(self, network: Network, papers: Mapping[str, TokenizedPaper]) -> None:
        self.network, self.papers = network, papers
        self._frozen_states: dict[str, Tensor] = {}

    def frozen_states(self, paper_id: str) -> Tensor:
        """States (tokens, dimension) bfloat16 of a paper, which are the input of the trainable layers.

        Each paper is encoded separately, so that its states do not depend on the order of calls.
        """
        if paper_id not in self._frozen_states:
            (self._frozen_states[paper_id],) = self.network.encode_lower([self.papers[paper_id]])
        return self._frozen_states[paper_id]

    def scores(self, query: str, pairs: Sequence[GradedPair]) -> Tensor:
        """Scores (candidates, facets) of a query's candidates."""
        ids = [query, *(pair.paper_id for pair in pairs)]
        scores: Tensor = self.network(
            [self.papers[paper_id] for paper_id in ids], [self.frozen_states(paper_id) for paper_id in ids]
        )
        return scores


def fit(
    scorer: CandidateScorer,
    splits: GradedSplits,
    schedule: Schedule,
    seed: int,
    checkpoints: Checkpoints,
    *,
    facets: Sequence[Facet] = FACETS,
) -> Progress:
    """Train the scorer's network on the grades of ``facets`` by `qbe.train.fitting.fit`.

    The score on dev is the mean of `mean_spearman` over the facets. The order of the lists and which of their
    unrelated candidates are used follow from the seed and the number of the epoch. Raises CorpusError where
    there are fewer lists of two or more candidates than a step has.
    """
    settings = LoopSettings(schedule.epochs, schedule.clip, schedule.patience, ema_decay=schedule.ema_decay)
    return fitting.fit(_Learner(scorer, splits, schedule, seed, facets), settings, seed, checkpoints)


class _Learner:
    """A scorer's network that is fitted to some lists, for `qbe.train.fitting.fit`."""

    def __init__(
        self,
        scorer: CandidateScorer,
        splits: GradedSplits,
        schedule: Schedule,
        seed: int,
        facets: Sequence[Facet],
    ) -> None:
        self.network: nn.Module = scorer.network
        self._scorer, self._splits, self._schedule, self._seed = scorer, splits, schedule, seed
        self._facets = [FACETS.index(facet) for facet in facets]
        self._queries = sorted(query for query, pairs in splits.train.items() if len(pairs) > 1)
        if len(self._queries) < schedule.queries:
            raise CorpusError(
                f"expected at least {schedule.queries} lists of two or more candidates to train on, found "
                f"{len(self._queries)}; give more pairs"
            )
        self.steps_per_epoch = len(self._queries) // schedule.queries

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW with a learning rate for each kind of parameters."""
        return adamw(self.network, self._schedule)

    def backward(self, step: int) -> Sequence[float]:
        """Compute the gradients of a step; the loss of each of its lists."""
        schedule, losses = self._schedule, []
        epoch, place = divmod(step, self.steps_per_epoch)
        order = random.Random(f"{self._seed}-{epoch}").sample(self._queries, len(self._queries))
        queries = order[place * schedule.queries : (place + 1) * schedule.queries]
        for query in queries:
            rng = random.Random(f"{self._seed}-{epoch}-{query}")
            pairs = sample_unrelated(self._splits.train[query], schedule.unrelated, rng)
            scores = self._scorer.scores(query, pairs)
            grades = torch.tensor([pair.grades for pair in pairs], device=scores.device)
            loss = torch.stack([self._loss(scores, grades, i) for i in self._facets]).mean()
            (loss / len(queries)).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
        return losses

    def _loss(self, scores: Tensor, grades: Tensor, facet: int) -> Tensor:
        """The loss of one facet, of scores and grades (candidates, facets)."""
        schedule = self._schedule
        loss = LOSSES[schedule.loss]
        if not schedule.crossed:
            return loss(scores[:, facet], grades[:, facet])
        return loss(scores[:, facet], grades[:, facet], crossed_emphasis(grades, facet, schedule.crossed))

    def score(self) -> DevScore:
        """Mean correlation of the facets that are trained."""
        correlations = mean_spearman(score_lists(self._scorer, self._splits.dev), self._splits.dev)
        text = " / ".join(f"{value:.4f}" for value in correlations)
        return DevScore(float(np.mean([correlations[i] for i in self._facets])), f"dev Spearman {text}")


class Rates(Protocol):
    """The learning rates of the layers, of the facets' projections and token weights, and of the weights of
    similarities and the gates; and the weight decay of the layers.
    """

    @property
    def learning_rate(self) -> float: ...  # noqa: D102 (described above)

    @property
    def head_rate(self) -> float: ...  # noqa: D102

    @property
    def weight_rate(self) -> float: ...  # noqa: D102

    @property
    def weight_decay(self) -> float: ...  # noqa: D102


def adamw(network: nn.Module, rates: Rates) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) for the trainable parameters of a facet cross-encoder."""
    by_rate: dict[float, list[nn.Parameter]] = {}
    for name, part in trainable(network).items():
        few = name == "weights" or name.endswith("gate")
        head = name in ("projections", "token_weights")
        rate = rates.weight_rate if few else rates.head_rate if head else rates.learning_rate
        by_rate.setdefault(rate, []).append(part)
    groups = [
        {
            "params": parts,
            "lr": rate,
            "weight_decay": rates.weight_decay if rate == rates.learning_rate else 0.0,
        }
        for rate, parts in by_rate.items()
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98))


def sample_unrelated(pairs: Sequence[GradedPair], count: int, rng: random.Random) -> list[GradedPair]:
    """The pairs with a grade of 1 or more, and at most ``count`` of the others, at random; in their order.

    >>> pairs = [GradedPair("a", (3, 0, 0)), GradedPair("b", (0, 0, 0)), GradedPair("c", (0, 0.5, 0))]
    >>> [pair.paper_id for pair in sample_unrelated(pairs, 0, random.Random(0))]
    ['a']
    >>> len(sample_unrelated(pairs, 1, random.Random(0)))
    2
    """
    unrelated = [place for place, pair in enumerate(pairs) if max(pair.grades) < 1]
    dropped = set(rng.sample(unrelated, max(0, len(unrelated) - count)))
    return [pair for place, pair in enumerate(pairs) if place not in dropped]


def score_lists(scorer: CandidateScorer, lists: GradedLists) -> dict[str, Floats]:
    """The scores (candidates, facets) of each query's candidates."""
    with torch.no_grad():
        return {query: scorer.scores(query, pairs).float().cpu().numpy() for query, pairs in lists.items()}


def mean_spearman(scores: Mapping[str, Floats], lists: GradedLists) -> tuple[float, ...]:
    """For each facet the mean over queries of the correlation of scores (candidates, facets) and grades.

    See `qbe.train.reranker.correlation`; queries whose grades are all equal do not count.
    """
    facets: list[list[float]] = [[] for _ in FACETS]
    for query, pairs in lists.items():
        for number, values in enumerate(facets):
            grades = [pair.grades[number] for pair in pairs]
            correlation = spearman(scores[query][:, number].tolist(), grades)
            if correlation is not None:
                values.append(correlation)
    return tuple(map(mean_correlation, facets))


def crossed_shares(scores: Mapping[str, Floats], lists: GradedLists) -> dict[str, CrossedAccuracy]:
    """The shares of crossed pairs (`qbe.evaluate.crossed`) that scores (candidates, facets) rank right, by
    pair of facets, such as ``method-background``; pairs of facets without crossed pairs are left out.
    """
    grades = {
        query: {pair.paper_id: dict(zip(FACETS, pair.grades, strict=True)) for pair in pairs}
        for query, pairs in lists.items()
    }
    by_paper = {
        (query, facet): dict(zip(grades[query], scores[query][:, number].tolist(), strict=True))
        for query in lists
        for number, facet in enumerate(FACETS)
    }
    return accuracies(grades, by_paper)
