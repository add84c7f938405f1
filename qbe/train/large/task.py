"""The large encoder as a task of the trainer: graded lists in steps, and their loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from qbe.runs import GradedLists, GradedPair
from qbe.train.large.network import LargeNetwork, PaperTable
from qbe.train.reranker.task import graded_steps, ranknet
from qbe.train.trainer import Schedule
from qbe.train.weights import adamw_by_name
from qbe.types import Facet

CROSSED = (tuple(Facet).index(Facet.BACKGROUND), tuple(Facet).index(Facet.METHOD))


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRecipe:
    """How the large encoder learns.

    It takes ``steps``. A step has ``queries`` lists; of a list's candidates without a grade of 1 or more, at
    most ``unrelated`` are used, and of a paper the first ``max_tokens``. AdamW: the layers learn at
    ``learning_rate`` with ``weight_decay``, the projections at ``head_rate``, the weights of similarities at
    ``weight_rate``; rates rise over ``warm_up`` of the steps.
    Pairs of candidates that background and method order in opposite ways, a grade or more apart in both,
    count ``crossed`` times in these facets. Papers are encoded in ``chunks`` of similar lengths. What
    training changed of a matrix is published at a ``rank``.
    """

    steps: int = 363
    queries: int = 8
    unrelated: int = 4
    max_tokens: int = 384
    learning_rate: float = 6e-5
    head_rate: float = 1e-4
    weight_rate: float = 2e-2
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.1
    crossed: float = 3.0
    chunks: int = 2
    rank: int = 64

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe, for which all steps are one epoch."""
        return Schedule(1, self.clip, warm_up=self.warm_up)


class Step(NamedTuple):
    """A step's lists: ``queries`` (lists,) and ``candidates`` (candidates,) as rows of the table, the list
    that each candidate belongs to, ``owners`` (candidates,), and its ``grades`` (candidates, facets).
    """

    queries: Tensor
    candidates: Tensor
    owners: Tensor
    grades: Tensor

    def to(self, device: torch.device | str) -> Step:
        """The step on a device."""
        return Step(*(part.to(device, non_blocking=True) for part in self))


def list_loss(scores: Tensor, owners: Tensor, grades: Tensor, crossed: float = 1.0) -> Tensor:
    """`qbe.train.reranker.task.ranknet` over pairs of different grades of a list, weighted by the difference.

    ``scores`` (lists, candidates, facets), ``owners`` (candidates,) the list of each candidate, ``grades``
    (candidates, facets) float32. See `LargeRecipe` for ``crossed``.

    >>> grades = torch.tensor([[3.0, 0, 0], [1.0, 0, 0]])
    >>> list_loss(torch.zeros(1, 2, 3), torch.tensor([0, 0]), grades) * 3  # log(1 + exp(0)), one facet of 3
    tensor(0.6931)
    """
    own = owners == torch.arange(len(scores), device=owners.device)[:, None]
    return ranknet(scores, order_weights(grades, crossed) * (own[:, :, None] & own[:, None])[..., None])


def order_weights(grades: Tensor, crossed: float) -> Tensor:
    """How much each order of two candidates counts, (candidates, candidates, facets), by their ``grades``
    (candidates, facets); see `LargeRecipe` for ``crossed``.
    """
    apart = grades[:, None] - grades[None, :]
    background, method = (apart[..., facet] for facet in CROSSED)
    opposite = (background * method < 0) & (torch.minimum(background.abs(), method.abs()) >= 1)
    weights = apart.clamp(min=0)
    weights[..., list(CROSSED)] *= (1 + (crossed - 1) * opposite.float())[..., None]
    return weights


class LargeTask:
    """A network that is fitted to graded lists, for `qbe.train.trainer.fit`."""

    def __init__(
        self,
        network: LargeNetwork,
        table: PaperTable,
        rows: Mapping[str, int],
        lists: GradedLists,
        recipe: LargeRecipe,
    ) -> None:
        """The papers of the lists have these ``rows`` of the table, by id."""
        self.network: LargeNetwork = network
        self._table, self._rows, self._lists, self._recipe = table, rows, lists, recipe
        self.steps_per_epoch = recipe.steps

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW (Loshchilov and Hutter, 2019) with a learning rate for each kind of parameters."""
        recipe = self._recipe
        heads = {"weights": recipe.weight_rate, "projections": recipe.head_rate}

        def settings(name: str, part: Tensor) -> tuple[float, float]:
            decay = recipe.weight_decay if name not in heads and part.dim() > 1 else 0.0
            return heads.get(name, recipe.learning_rate), decay

        return adamw_by_name(self.network, settings)

    def batches(self, seed: int) -> Iterator[Step]:
        """More steps than are trained."""
        for lists in graded_steps(self._lists, self._recipe.queries, self._recipe.unrelated, seed):
            yield self._step(lists)

    def _step(self, lists: Mapping[str, Sequence[GradedPair]]) -> Step:
        pairs = [(number, pair) for number, some in enumerate(lists.values()) for pair in some]
        return Step(
            torch.tensor([self._rows[query] for query in lists]),
            torch.tensor([self._rows[pair.paper_id] for _, pair in pairs]),
            torch.tensor([number for number, _ in pairs]),
            torch.tensor([pair.grades for _, pair in pairs]),
        )

    def losses(self, batch: Step) -> Iterable[Tensor]:
        """The loss of a step; papers that occur twice are encoded once."""
        step = batch.to(self._table.ids.device)
        rows, places = torch.unique(torch.cat([step.queries, step.candidates]), return_inverse=True)
        vectors = self.network.encode(self._table, rows, self._recipe.chunks)
        count = len(step.queries)
        scores = self.network.scores(vectors.rows(places[:count]), vectors.rows(places[count:]))
        yield list_loss(scores, step.owners, step.grades, self._recipe.crossed)

    def score(self) -> None:
        """The weights of the last step are kept."""
