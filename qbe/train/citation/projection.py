"""Fitting the projection: late interaction of projected vectors ranks what a paper cites above the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.cite.projected import TERMS, Projection
from qbe.errors import CorpusError
from qbe.train.late_interaction import StoredVectors, best_within, mean_by_paper
from qbe.train.trainer import Schedule, shuffled
from qbe.train.weights import Weights

Ints = NDArray[np.int64]

START_WEIGHTS = (8.0, 14.0, 2.0)
"""Of the TERMS: as large as the similarities need for a softmax over some hundred candidates."""


@dataclass(frozen=True, slots=True)
class ProjectionSchedule:
    """How the projection is fitted.

    Each step takes ``queries`` papers. Candidates are all papers that one of them cites, the ``nearest``
    others of each by the first stage, and ``random`` ones of its best ``depth``. ``anchor`` is the weight of
    the squared distance of the matrices to the identity. After ``patience`` epochs that are no better on dev
    the best epoch's matrices are taken.
    """

    epochs: int = 10
    patience: int = 2
    queries: int = 24
    nearest: int = 20
    random: int = 10
    depth: int = 1000
    learning_rate: float = 3e-4
    weight_rate: float = 2e-2
    anchor: float = 1e-3

    def schedule(self) -> Schedule:
        """The trainer's part of the schedule."""
        return Schedule(self.epochs, patience=self.patience)


class ProjectionNetwork(nn.Module):
    """The matrices and weights of a `qbe.cite.projected.Projection`, which begin as the identity."""

    def __init__(self, vectors: StoredVectors) -> None:
        super().__init__()
        size = vectors.whole.shape[1]
        self.vectors = vectors
        self.matrices = nn.Parameter(torch.eye(size).repeat(2, 1, 1))
        self.weights = nn.Parameter(torch.tensor(START_WEIGHTS))
        assert len(START_WEIGHTS) == len(TERMS)

    def forward(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Scores (queries, candidates) of papers, given by row."""
        rows, places = self.vectors.rows(candidates)
        query_rows, query_places = self.vectors.rows(queries)
        sentences, query_sentences = (
            F.normalize(self.vectors.sentences[each] @ self.matrices[0].T, dim=-1)
            for each in (rows, query_rows)
        )
        whole, query_whole = (
            F.normalize(self.vectors.whole[papers] @ self.matrices[1].T, dim=-1)
            for papers in (candidates, queries)
        )
        cosines = query_sentences @ sentences.T
        best = best_within(cosines, places, len(candidates))
        nearest = best_within(cosines.T, query_places, len(queries))
        parts = (
            mean_by_paper(best, query_places, len(queries)),
            query_whole @ whole.T,
            mean_by_paper(nearest, places, len(candidates)).T,
        )
        return torch.einsum("tqc,t->qc", torch.stack(parts), self.weights)


def projection_of(weights: Weights) -> Projection:
    """Weights of the network as search reads them."""
    (sentences, whole), of_terms = (weights[name].double().numpy() for name in ("matrices", "weights"))
    return Projection(sentences, whole, of_terms)


def citation_loss(scores: Tensor, cited: Tensor, candidates: Tensor) -> Tensor:
    """The mean over what is cited of the cross-entropy of one cited paper against all that are not.

    All are (candidates,): ``scores``; ``cited``, a mask; ``candidates``, a mask of those that count.

    >>> scores = torch.tensor([1.0, 1.0, 1.0, 9.0])
    >>> cited = torch.tensor([True, False, False, False])
    >>> float(citation_loss(scores, cited, torch.tensor([True, True, True, False])).exp())  # one of three
    3.0
    """
    others = torch.logsumexp(scores[candidates & ~cited], 0)
    chosen = scores[candidates & cited]
    return (torch.logaddexp(chosen, others) - chosen).mean()


class Citations(NamedTuple):
    """What queries, by row, have ``cited``, their ``nearest`` papers, and the ``years`` of all papers."""

    cited: Mapping[int, Ints]
    nearest: Mapping[int, Ints]
    years: NDArray[np.float64]


class Step(NamedTuple):
    """The queries of a step and the candidates of all of them, by row."""

    queries: Sequence[int]
    candidates: Ints


class ProjectionTask:
    """A projection that learns to rank what is cited above what is not.

    Raises CorpusError where no query cites a paper.
    """

    def __init__(
        self,
        network: ProjectionNetwork,
        citations: Citations,
        schedule: ProjectionSchedule,
        figure: Callable[[ProjectionNetwork], float] | None = None,
    ) -> None:
        """``figure`` measures the network on dev; without it the last epoch is kept."""
        self.network = network
        self._citations, self._schedule, self._figure = citations, schedule, figure
        self._queries = sorted(query for query, cited in citations.cited.items() if len(cited))
        if not self._queries:
            raise CorpusError("expected papers that cite others to train on, found none; give more citations")
        self.steps_per_epoch = -(-len(self._queries) // schedule.queries)
        self._identity = torch.eye(network.matrices.shape[1])

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW without decay; the weights of the terms have a rate of their own."""
        groups = [
            {"params": [self.network.matrices], "lr": self._schedule.learning_rate},
            {"params": [self.network.weights], "lr": self._schedule.weight_rate},
        ]
        return torch.optim.AdamW(groups, weight_decay=0.0)

    def batches(self, seed: int) -> Iterator[Step]:
        """The queries and candidates of each step."""
        schedule, rng = self._schedule, np.random.default_rng(seed)
        for chosen in shuffled(self._queries, schedule.queries, schedule.epochs, rng):
            yield Step(chosen, self._candidates(chosen, rng))

    def losses(self, batch: Step) -> Iterator[Tensor]:
        """The loss of a step, and how far the matrices are from the identity."""
        scores = self.network(torch.tensor(batch.queries), torch.tensor(batch.candidates))
        losses = []
        for place, query in enumerate(batch.queries):
            years = self._citations.years
            may = (batch.candidates != query) & ~(years[batch.candidates] > years[query])
            right = np.isin(batch.candidates, self._citations.cited[query])
            losses.append(citation_loss(scores[place], torch.tensor(right), torch.tensor(may | right)))
        distance = ((self.network.matrices - self._identity) ** 2).sum()
        yield torch.stack(losses).mean() + self._schedule.anchor * distance

    def score(self) -> float | None:
        """The figure on dev, if there is one."""
        if self._figure is None:
            return None
        return self._figure(self.network)

    def _candidates(self, queries: Sequence[int], rng: np.random.Generator) -> Ints:
        nearest, schedule = [self._citations.nearest[query] for query in queries], self._schedule
        parts = [self._citations.cited[query] for query in queries]
        parts += [rows[: schedule.nearest] for rows in nearest]
        parts += [rng.choice(rows, min(schedule.random, len(rows))) for rows in nearest]
        return np.unique(np.concatenate(parts))
