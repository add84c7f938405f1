"""The facet rerankers as a task of the trainer: steps of graded lists, scores of candidates, their loss."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.errors import CorpusError
from qbe.runs import GradedLists, GradedPair
from qbe.train.correlation import facet_correlations
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import TokenizedPaper
from qbe.train.trainer import Schedule
from qbe.train.weights import adamw_by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecipe:
    """How a facet cross-encoder learns, from whatever data; docs/lessons.md says what it was chosen on.

    The ``joint`` upper layers are trained; a paper's first ``max_tokens`` are read. AdamW: the layers learn
    at ``learning_rate`` with ``weight_decay``, the facets' projections and token weights at ``head_rate``,
    the weights of similarities and the gates, which are few, at ``weight_rate``. For the other fields see
    `qbe.train.trainer.Schedule`.
    """

    joint: int = 3
    max_tokens: int = 384
    learning_rate: float = 6e-5
    head_rate: float = 2e-4
    weight_rate: float = 2e-2
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.1
    ema_decay: float = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(NetworkRecipe):
    """How facet cross-encoders are trained on graded pairs.

    In the joint layers candidates attend to the query. A step has ``queries`` lists; of a list's candidates
    without a grade of 1 or more, at most ``unrelated`` are used, others in each epoch.
    """

    epochs: int = 1
    queries: int = 2
    unrelated: int = 4

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe."""
        return Schedule(self.epochs, self.clip, warm_up=self.warm_up, ema_decay=self.ema_decay)


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

    @torch.no_grad()
    def correlations(self, lists: GradedLists) -> list[float]:
        """For each facet the mean over queries of the correlation of scores and grades
        (`facet_correlations`).
        """
        return facet_correlations(
            (self.scores(query, pairs).float().cpu().numpy(), [pair.grades for pair in pairs])
            for query, pairs in lists.items()
        )


class GradedTask:
    """A scorer's network that is fitted to the grades of lists, for `qbe.train.trainer.fit`."""

    def __init__(self, scorer: CandidateScorer, lists: GradedLists, recipe: Recipe) -> None:
        """Raise CorpusError where there are fewer lists of two or more candidates than a step has."""
        self.network: nn.Module = scorer.network
        self._scorer, self._lists, self._recipe = scorer, lists, recipe
        self.steps_per_epoch = len(queries_of(lists, recipe.queries)) // recipe.queries

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW with a learning rate for each kind of parameters."""
        return adamw(self.network, self._recipe)

    def batches(self, seed: int) -> Iterator[dict[str, list[GradedPair]]]:
        """See `graded_steps`."""
        return graded_steps(self._lists, self._recipe.queries, self._recipe.unrelated, seed)

    def losses(self, batch: Mapping[str, Sequence[GradedPair]]) -> Iterable[Tensor]:
        """The mean over the facets of the loss of each list, divided by the number of lists."""
        for query, pairs in batch.items():
            scores = self._scorer.scores(query, pairs)
            grades = torch.tensor([pair.grades for pair in pairs], device=scores.device)
            yield logistic(scores, grades) / len(batch)

    def score(self) -> None:
        """The weights of the last step are kept."""


def logistic(scores: Tensor, grades: Tensor) -> Tensor:
    """`ranknet` over pairs of different grades, weighted by the difference.

    ``scores`` and ``grades`` (candidates, facets) float32; the loss is a scalar.

    >>> logistic(torch.zeros(2, 1), torch.tensor([[3.0], [1.0]]))  # log(1 + exp(0)), weight 2, over 2
    tensor(0.6931)
    """
    return ranknet(scores, (grades[:, None] - grades[None, :]).clamp(min=0))


def ranknet(scores: Tensor, weights: Tensor) -> Tensor:
    """RankNet (Burges et al., 2005, eq. 3): the weighted mean over pairs of candidates, and the mean of that
    over facets, and over lists where there are several.

    ``scores`` (..., candidates, facets); ``weights`` (..., candidates, candidates, facets) of the pairs whose
    first one should have the higher score. The loss is a scalar.
    """
    losses = weights * F.softplus(-(scores[..., :, None, :] - scores[..., None, :, :]))
    return (losses.sum((-3, -2)) / weights.sum((-3, -2)).clamp(min=1e-9)).mean()


def adamw(network: nn.Module, recipe: NetworkRecipe) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) for the trainable parameters of a facet cross-encoder."""

    def settings(name: str, _: nn.Parameter) -> tuple[float, float]:
        few = name == "weights" or name.endswith("gate")
        head = name in ("projections", "token_weights")
        rate = recipe.weight_rate if few else recipe.head_rate if head else recipe.learning_rate
        return rate, recipe.weight_decay if rate == recipe.learning_rate else 0.0

    return adamw_by_name(network, settings)


def queries_of(lists: GradedLists, count: int) -> list[str]:
    """The queries of lists of two or more candidates, in order; raises CorpusError below ``count``."""
    queries = sorted(query for query, pairs in lists.items() if len(pairs) > 1)
    if len(queries) < count:
        raise CorpusError(
            f"expected at least {count} lists of two or more candidates to train on, found "
            f"{len(queries)}; give more pairs"
        )
    return queries


def graded_steps(
    lists: GradedLists, size: int, unrelated: int, seed: int
) -> Iterator[dict[str, list[GradedPair]]]:
    """Steps of ``size`` lists, pairs by query, without end; of a list at most so many ``unrelated`` pairs.

    The order of the lists, and which of their unrelated pairs are used, follow from the seed and the number
    of the epoch. Raises CorpusError where there are fewer lists of two or more candidates than a step has.
    """
    queries = queries_of(lists, size)
    for epoch in itertools.count():
        for chosen in in_steps(queries, size, f"{seed}-{epoch}"):
            yield {
                query: sample_unrelated(lists[query], unrelated, random.Random(f"{seed}-{epoch}-{query}"))
                for query in chosen
            }


def in_steps(queries: Sequence[str], size: int, seed: str) -> Iterator[list[str]]:
    """The queries in the order of a seed, ``size`` a step; the rest is left out.

    >>> [len(step) for step in in_steps("abcde", 2, "0")]
    [2, 2]
    """
    order = random.Random(seed).sample(queries, len(queries))
    for first in range(0, len(order) - size + 1, size):
        yield order[first : first + size]


def sample_unrelated(pairs: Sequence[GradedPair], count: int, rng: random.Random) -> list[GradedPair]:
    """The pairs with a grade of 1 or more, and at most ``count`` of the others, at random; in their order.

    >>> pairs = [GradedPair("a", (3, 0, 0)), GradedPair("b", (0, 0, 0)), GradedPair("c", (0, 0.5, 0))]
    >>> [len(sample_unrelated(pairs, count, random.Random(0))) for count in (0, 1, 9)]
    [1, 2, 3]
    """
    unrelated = [place for place, pair in enumerate(pairs) if max(pair.grades) < 1]
    dropped = set(rng.sample(unrelated, max(0, len(unrelated) - count)))
    return [pair for place, pair in enumerate(pairs) if place not in dropped]
