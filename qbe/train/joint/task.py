"""A cross-encoder of pairs as a task of the trainer: graded lists in steps, and their loss."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.runs import GradedLists, GradedPair
from qbe.train.joint.network import HEAD, JointNetwork, Texts, chunks, grades_of
from qbe.train.large.task import order_weights
from qbe.train.reranker.task import in_steps, queries_of, ranknet, sample_unrelated
from qbe.train.trainer import Schedule
from qbe.train.weights import adamw_by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecipe:
    """How a cross-encoder of pairs learns.

    It takes ``steps`` of ``queries`` lists; of a list's candidates without a grade of 1 or more, at most
    ``unrelated`` are used. AdamW: the layers learn at ``learning_rate`` with ``weight_decay``, the head at
    ``head_rate``; rates rise over ``warm_up`` of the steps. The loss is the squared error of the grades and
    RankNet's of the scores of a list, where orders that background and method give in opposite ways count
    ``crossed`` times (`qbe.train.large.task.order_weights`). Half of the pairs are read the other way round.
    """

    steps: int
    learning_rate: float
    warm_up: float
    queries: int = 8
    unrelated: int = 4
    head_rate: float = 3e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    crossed: float = 3.0

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe, for which all steps are one epoch."""
        return Schedule(1, self.clip, warm_up=self.warm_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRecipe:
    """How joint grades are made: by ``student`` from graded lists and as many that the ``teacher`` graded.

    The teacher grades candidates of papers that are drawn from the index, ``depth`` of the fused first stage
    by each facet: of ``found`` papers out of the rankings by each facet, and of ``graded`` papers out of
    those by the grade model, by each facet and each shape of exploration. Of a ranking as many are drawn as
    ``found_picks`` and ``graded_picks`` say, among those up to each rank.
    """

    teacher: FitRecipe = field(
        default_factory=lambda: FitRecipe(steps=2000, learning_rate=4e-5, warm_up=0.06)
    )
    student: FitRecipe = field(
        default_factory=lambda: FitRecipe(steps=9871, learning_rate=1.5e-4, warm_up=0.07)
    )
    depth: int = 300
    found: int = 2315
    found_picks: tuple[tuple[int, int], ...] = ((6, 6), (30, 5), (150, 4), (300, 1))
    graded: int = 1766
    graded_picks: tuple[tuple[int, int], ...] = ((8, 8), (50, 5), (900, 2))


TOKENS = 24576
"""Of a chunk of pairs, padding included."""


class JointTask:
    """A network that is fitted to graded lists, for `qbe.train.trainer.fit`."""

    def __init__(
        self, network: JointNetwork, texts: Texts, recipe: FitRecipe, sets: Sequence[GradedLists]
    ) -> None:
        """Steps take their lists of each of the ``sets`` equally often."""
        self.network: nn.Module = network
        self._network, self._texts, self._recipe, self._sets = network, texts, recipe, sets
        self._queries = [queries_of(lists, recipe.queries) for lists in sets]
        self.steps_per_epoch = recipe.steps

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW with a learning rate for the layers and one for the head."""
        recipe = self._recipe

        def settings(name: str, part: nn.Parameter) -> tuple[float, float]:
            rate = recipe.head_rate if name in HEAD else recipe.learning_rate
            return rate, recipe.weight_decay if part.dim() > 1 else 0.0

        return adamw_by_name(self.network, settings)

    def batches(self, seed: int) -> Iterator[dict[str, list[GradedPair]]]:
        """Lists without end, pairs by query; their order and unrelated candidates follow from the seed."""
        drawn = [self._lists(number, f"{seed}-{number}") for number in range(len(self._sets))]
        for turn in itertools.count():
            yield next(drawn[turn % len(drawn)])

    def _lists(self, number: int, seed: str) -> Iterator[dict[str, list[GradedPair]]]:
        for epoch in itertools.count():
            rng = random.Random(f"{seed}-{epoch}")
            for queries in in_steps(self._queries[number], self._recipe.queries, f"{seed}-{epoch}"):
                yield {
                    query: sample_unrelated(self._sets[number][query], self._recipe.unrelated, rng)
                    for query in queries
                }

    def losses(self, batch: Mapping[str, Sequence[GradedPair]]) -> Iterable[Tensor]:
        """The loss of a step."""
        graded = [
            (owner, query, pair) for owner, (query, pairs) in enumerate(batch.items()) for pair in pairs
        ]
        turned = random.Random("-".join(batch)).choices((False, True), k=len(graded))
        pairs = [
            (pair.paper_id, query) if turn else (query, pair.paper_id)
            for (_, query, pair), turn in zip(graded, turned, strict=True)
        ]
        scores = scored(self._network, self._texts, pairs)
        owners = torch.tensor([owner for owner, *_ in graded], device=scores.device)
        grades = torch.tensor([pair.grades for *_, pair in graded], device=scores.device)
        same = (owners[:, None] == owners)[..., None]
        ranked = ranknet(scores, order_weights(grades, self._recipe.crossed) * same)
        yield F.mse_loss(grades_of(scores), grades) + ranked

    def score(self) -> None:
        """The weights of the last step are kept."""


def scored(network: JointNetwork, texts: Texts, pairs: Sequence[tuple[str, str]]) -> Tensor:
    """Scores (pairs, facets) float32, in the order of the pairs."""
    device = network.out_weight.device
    parts = chunks([texts.length(*pair) for pair in pairs], TOKENS)
    scores = [network(texts.batch([pairs[place] for place in part]).to(device)) for part in parts]
    places = torch.tensor([place for part in parts for place in part], device=device)
    return torch.cat(scores).float()[torch.argsort(places)]


@torch.no_grad()
def graded(
    network: JointNetwork, texts: Texts, lists: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Grades (candidates, 3) of candidates, ids of papers by query."""
    found = {}
    for query, candidates in lists.items():
        scores = scored(network, texts, [(query, candidate) for candidate in candidates])
        found[query] = grades_of(scores).cpu().numpy().astype(np.float64)
    return found
