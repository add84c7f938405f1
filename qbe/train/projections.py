"""Training of the facet projections: the terms of `qbe.search.projections`, fitted to graded pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qbe.index.reader import IndexReader
from qbe.index.scoring import kept_or_all
from qbe.index.views import rows_of
from qbe.runs import GradedLists, read_graded_pairs
from qbe.search.projections import TERMS, FacetProjection, ProjectionModel, write_model
from qbe.train.card import BY_FACET, GRADES_LIMITS, Card, reader_name
from qbe.train.fit import Schedule, Task, Weights, fit_seeds, shuffled, with_weights
from qbe.train.losses import logistic
from qbe.train.network import START_WEIGHT, ProjectedPapers, StoredVectors, vector_terms
from qbe.train.pairs import (
    check_dev,
    encoder_of,
    facet_correlations,
    file_label,
    joined_lists,
    papers_of,
    within,
    without,
    without_evaluated,
)
from qbe.train.work import Training
from qbe.types import Facet

log = logging.getLogger(__name__)

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
    by_place = [
        [
            GradedList(
                torch.tensor(place[query]),
                torch.tensor([place[pair.paper_id] for pair in pairs]),
                torch.tensor([pair.grades for pair in pairs], dtype=torch.float32),
            )
            for query, pairs in lists.items()
        ]
        for lists in sets
    ]
    return StoredLists(vectors, torch.tensor(marked), by_place)


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
                ProjectedPapers.of(self.vectors, papers, marked, matrix)
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
    start_weight: float = START_WEIGHT

    def schedule(self) -> Schedule:
        return Schedule(self.epochs, self.clip, warm_up=0.1, ema_decay=self.ema_decay, ema_ramp=False)


class ProjectionTask(Task[list[GradedList]]):
    """Projections that are fitted to the first set of lists, and measured on the second."""

    network: ProjectionNetwork

    def __init__(self, lists: StoredLists, recipe: Recipe) -> None:
        self.network = ProjectionNetwork(lists, recipe.start_weight)
        self._train, self._dev, self._recipe = *lists.sets[:2], recipe
        self.steps_per_epoch = -(-len(self._train) // recipe.queries)

    def rate(self, name: str, _: Tensor) -> tuple[float, float]:
        return self._recipe.weight_rate if name == "weights" else self._recipe.learning_rate, 0.0

    def batches(self, seed: int) -> Iterator[list[GradedList]]:
        recipe = self._recipe
        return shuffled(self._train, recipe.queries, recipe.epochs, np.random.default_rng(seed))

    def losses(self, batch: Sequence[GradedList]) -> Iterable[Tensor]:
        """The mean loss of the lists and facets, and the distance of the matrices from the identity."""
        identity = torch.eye(self.network.matrices.shape[1])
        loss = torch.stack([logistic(self.network(graded), graded.grades) for graded in batch]).mean()
        yield loss + self._recipe.anchor * ((self.network.matrices - identity) ** 2).sum()

    def score(self) -> float:
        return float(np.mean(self.network.correlations(self._dev)))


Figures = Mapping[str, Mapping[str, Sequence[float]]]
"""Spearman's correlations by facet, by weights and file of pairs."""

FIGURES = "Spearman's correlation with the grades, mean over queries. The mean of the seeds is published."
"""What the cards say of them."""


@dataclass
class ProjectionTraining(Training):
    """Facet projections, fitted to graded pairs over the vectors of an index.

    Sources are files of graded pairs, an index of their papers, and papers to leave out; queries of dev are
    not trained on, and its first file chooses the epochs. The mean of the seeds is published.
    """

    recipe: Recipe = field(default_factory=Recipe)

    def open(self) -> dict[str, Any]:
        _, self._reader = self.open_index()
        self._encoder = encoder_of(self._reader)
        return {"index": self._reader.manifest.digest}

    def fit(self) -> None:
        reader, recipe = self._reader, self.recipe
        dev = [read_graded_pairs(file) for file in self.sources.dev]
        pairs = without(joined_lists(self.sources.train), {query for lists in dev for query in lists})
        pairs = without_evaluated(pairs, reader, self.sources.leave_out)
        sets = [within(each, reader) for each in (pairs, *dev)]
        for file, lists in zip(self.sources.dev, sets[1:], strict=True):
            check_dev(lists, file)
        stored = read_lists(reader, sets)
        log.info("fitting to %d lists, %d papers", len(stored.sets[0]), len(papers_of(sets[0])))
        task = ProjectionTask(stored, recipe)
        fitted = fit_seeds(task, recipe.schedule(), self.run.seeds, self.work)
        self._published = list(fitted.values())[-1]
        identity = torch.eye(stored.vectors.whole.shape[1]).repeat(len(FACETS), 1, 1)
        compared = {"untrained": {**self._published, "matrices": identity}, **fitted}
        names, network = list(map(file_label, self.sources.dev)), task.network
        self._figures: Figures = {
            label: with_weights(
                network,
                weights,
                lambda: dict(zip(names, map(network.correlations, stored.sets[1:]), strict=True)),
            )
            for label, weights in compared.items()
        }
        self._pairs = sum(len(each.candidates) for each in stored.sets[0])

    def publish(self, folder: Path) -> Card:
        training = {**self.made_from, "seeds": list(self.run.seeds), "pairs": self._pairs}
        model = ProjectionModel(projections_of(self._published), self._encoder, training)
        write_model(folder, model)
        return projections_card(
            model,
            self._figures,
            "learned from",
            f"{FIGURES} Untrained: the published weights of the terms, but the vectors as they are.",
            "facet-projections --index DIR",
        )


def by_file(figures: Figures) -> dict[str, Sequence[float]]:
    """Rows of a card's table, by the file of pairs and the weights."""
    files = next(iter(figures.values()))
    return {f"{file} | {label}": rows[file] for file in files for label, rows in figures.items()}


def projections_card(
    model: ProjectionModel, figures: Figures, learned: str, caption: str, command: str
) -> Card:
    """The card of projections that were ``learned`` in a way, by a ``command``."""
    encoder = model.encoder["name"]
    return Card(
        name=reader_name("facet-projections", encoder),
        purpose=f"Reranks candidates by stored vectors of {encoder} alone: a linear projection for each "
        f"facet and late interaction of the projected vectors, {learned} {model.training['pairs']:,} graded "
        "pairs.",
        input=f"the vectors that an index stores of {encoder} (weights "
        f"{model.encoder['weights_sha256'][:12]})",
        caption=caption,
        columns=("pairs", "weights", *BY_FACET),
        figures=by_file(figures),
        command=command,
        limits=GRADES_LIMITS,
    )
