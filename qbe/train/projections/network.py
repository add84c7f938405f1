"""The facet projections in PyTorch: the terms of `qbe.rerank.projections`, of lists of stored vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qbe.graded_pairs import GradedLists, GradedPair
from qbe.index.dense.scoring import kept_or_all
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.rerank.projections import TERMS, FacetProjection
from qbe.train.correlation import facet_correlations
from qbe.train.late_interaction import ProjectedPapers, StoredVectors, vector_terms
from qbe.train.pairs import papers_of
from qbe.train.reranker.task import logistic
from qbe.train.trainer import Schedule, shuffled
from qbe.train.weights import Weights
from qbe.types import Facet

FACETS = tuple(Facet)


class GradedList(NamedTuple):
    """A query and its candidates by their places among stored papers, () and (n,) int64, and the grades
    (n, 3) float32.
    """

    query: Tensor
    candidates: Tensor
    grades: Tensor


class StoredLists(NamedTuple):
    """The vectors of all papers of some lists, their sentences of each facet ``marked`` (3, sentences), and
    each set of lists by the papers' places.
    """

    vectors: StoredVectors
    marked: Tensor
    sets: Sequence[Sequence[GradedList]]


def read_lists(reader: IndexReader, sets: Sequence[GradedLists]) -> StoredLists:
    """Sets of lists with the vectors that an index has of their papers, all of which it holds."""
    ids = sorted(papers_of(*sets))
    place = {paper_id: number for number, paper_id in enumerate(ids)}
    rows = rows_of(reader.papers, ids)
    block = reader.vector_store.gather(rows)
    marked = np.stack([kept_or_all(reader.facet_mask(facet)[block.rows], block.starts) for facet in FACETS])
    vectors = StoredVectors.of_block(block, reader.vector_store.whole(rows))
    by_place = [[_by_place(*each, place) for each in lists.items()] for lists in sets]
    return StoredLists(vectors, torch.tensor(marked), by_place)


def _by_place(query: str, pairs: Sequence[GradedPair], place: Mapping[str, int]) -> GradedList:
    candidates = torch.tensor([place[pair.paper_id] for pair in pairs])
    grades = torch.tensor([pair.grades for pair in pairs], dtype=torch.float32)
    return GradedList(torch.tensor(place[query]), candidates, grades)


class ProjectionNetwork(nn.Module):
    """A matrix for each facet, (3, dimension, dimension), which begins as the identity, and weights (3, 4)
    of the terms. A paper that has no sentence of a facet is read by all of its sentences.
    """

    marked: Tensor

    def __init__(self, lists: StoredLists, start_weight: float) -> None:
        super().__init__()
        self.vectors = lists.vectors
        self.register_buffer("marked", lists.marked, persistent=False)
        self.matrices = nn.Parameter(torch.eye(self.vectors.whole.shape[1]).repeat(len(FACETS), 1, 1))
        self.weights = nn.Parameter(torch.full((len(FACETS), len(TERMS)), start_weight))

    def forward(self, graded: GradedList) -> Tensor:
        """Scores (n, 3) of a list's candidates."""
        columns = []
        for marked, matrix, weights in zip(self.marked, self.matrices, self.weights, strict=True):
            query, candidates = (
                ProjectedPapers.of(self.vectors, papers, None, marked, matrix)
                for papers in (graded.query[None], graded.candidates)
            )
            columns.append(weights @ vector_terms(query, candidates)[:, 0])
        return torch.stack(columns, 1)

    @torch.no_grad()
    def correlations(self, lists: Sequence[GradedList]) -> list[float]:
        """For each facet the mean of Spearman's correlations with grades (`facet_correlations`)."""
        return facet_correlations((self(graded).numpy(), graded.grades.tolist()) for graded in lists)


def projections_of(weights: Weights) -> dict[Facet, FacetProjection]:
    """Weights of the network as search reads them."""
    matrices, of_terms = (weights[name].double().numpy() for name in ("matrices", "weights"))
    return {facet: FacetProjection(matrices[place], of_terms[place]) for place, facet in enumerate(FACETS)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the projections are fitted.

    ``queries`` lists a step; the matrices begin as the identity and are held near it, by the squared
    differences of their numbers times ``anchor``; all learning rates rise over the first tenth of the steps
    and fall to 0 in the end. A running mean of the weights (``ema_decay``) is measured after each epoch.
    """

    epochs: int = 2
    queries: int = 4
    learning_rate: float = 3e-4
    weight_rate: float = 2e-2
    anchor: float = 1e-3
    ema_decay: float = 0.98
    clip: float = 1.0
    start_weight: float = 4.0

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe."""
        return Schedule(self.epochs, self.clip, warm_up=0.1, ema_decay=self.ema_decay, ema_ramp=False)


class ProjectionTask:
    """Projections that are fitted to the first set of lists, and measured on the second, for the trainer."""

    def __init__(self, lists: StoredLists, recipe: Recipe) -> None:
        self.network: ProjectionNetwork = ProjectionNetwork(lists, recipe.start_weight)
        self._train, self._dev, self._recipe = *lists.sets[:2], recipe
        self.steps_per_epoch = -(-len(self._train) // recipe.queries)

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW without decay, with a learning rate for the matrices and one for the weights."""
        groups = [
            {"params": [self.network.matrices], "lr": self._recipe.learning_rate},
            {"params": [self.network.weights], "lr": self._recipe.weight_rate},
        ]
        return torch.optim.AdamW(groups, weight_decay=0.0)

    def batches(self, seed: int) -> Iterator[list[GradedList]]:
        """The lists of each step."""
        recipe = self._recipe
        return shuffled(self._train, recipe.queries, recipe.epochs, np.random.default_rng(seed))

    def losses(self, batch: Sequence[GradedList]) -> Iterable[Tensor]:
        """The mean loss of the lists and facets, and the distance of the matrices from the identity."""
        identity = torch.eye(self.network.matrices.shape[1])
        loss = torch.stack([logistic(self.network(graded), graded.grades) for graded in batch]).mean()
        yield loss + self._recipe.anchor * ((self.network.matrices - identity) ** 2).sum()

    def score(self) -> float:
        """The mean correlation with the grades of dev."""
        return float(np.mean(self.network.correlations(self._dev)))
