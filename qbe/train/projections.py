"""Training of the facet projections: the terms of `qbe.search.projections`, fitted to graded pairs."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qbe.index.papers import rows_of
from qbe.index.reader import IndexReader
from qbe.index.vectors import kept_or_all
from qbe.runs import GradedLists
from qbe.search.projections import TERMS, FacetProjection, ProjectionModel, write_model
from qbe.train.fit import Schedule, Task, Weights, fit_seeds, shuffled, with_weights
from qbe.train.losses import FACETS, ranknet
from qbe.train.network import START_WEIGHT, StoredVectors, vector_terms
from qbe.train.pairs import check_dev, encoder_of, facet_correlations, papers_of, read_indexed_lists
from qbe.train.work import BY_FACET, GRADES_LIMITS, Card, Training, reader_name
from qbe.types import Facet

log = logging.getLogger(__name__)


class GradedList(NamedTuple):
    """A query and its candidates by their places among stored papers, and their grades (n, 3) float32."""

    query: Tensor
    candidates: Tensor
    grades: Tensor


def read_lists(
    reader: IndexReader, sets: Sequence[GradedLists]
) -> tuple[StoredVectors, Tensor, list[list[GradedList]]]:
    """The vectors that an index has of the papers of sets of lists, all of which it holds, their sentences of
    each facet (3, sentences) bool, and the sets by the papers' places.
    """
    ids = sorted(papers_of(*sets))
    place = {paper_id: number for number, paper_id in enumerate(ids)}
    rows = rows_of(reader.papers, ids)
    block, whole = reader.gather(rows), reader.whole(rows)
    marked = np.stack([kept_or_all(reader.facet_mask(facet)[block.rows], block.starts) for facet in Facet])
    starts = np.append(block.starts, len(block.rows))
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
    return StoredVectors(block.vectors, whole, starts), torch.tensor(marked), by_place


class ProjectionNetwork(nn.Module):
    """A matrix for each facet, which begins as the identity, and weights (3, 4) of the terms."""

    marked: Tensor

    def __init__(self, vectors: StoredVectors, marked: Tensor, start_weight: float) -> None:
        super().__init__()
        self.vectors = vectors
        self.register_buffer("marked", marked, persistent=False)
        self.matrices = nn.Parameter(torch.eye(self.vectors.whole.shape[1]).repeat(FACETS, 1, 1))
        self.weights = nn.Parameter(torch.full((FACETS, len(TERMS)), start_weight))

    def forward(self, graded: GradedList) -> Tensor:
        """Scores (n, 3) of a list's candidates."""
        columns = []
        for marked, matrix, weights in zip(self.marked, self.matrices, self.weights, strict=True):
            sides = (graded.query[None], graded.candidates)
            query, candidates = (self.vectors.projected(papers, marked, matrix) for papers in sides)
            columns.append(weights @ vector_terms(query, candidates)[:, 0])
        return torch.stack(columns, 1)

    @torch.no_grad()
    def correlations(self, lists: Sequence[GradedList]) -> list[float]:
        return facet_correlations((self(graded).numpy(), graded.grades.tolist()) for graded in lists)


def projections_of(weights: Weights) -> dict[Facet, FacetProjection]:
    """Weights of the network as search reads them."""
    matrices, of_terms = (weights[name].double().numpy() for name in ("matrices", "weights"))
    return {facet: FacetProjection(matrices[place], of_terms[place]) for place, facet in enumerate(Facet)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the projections are fitted; learning rates rise over a tenth of the steps, and fall to 0."""

    epochs: int = 2
    queries: int = 4  # lists a step
    learning_rate: float = 3e-4
    weight_rate: float = 2e-2
    anchor: float = 1e-3  # the weight of the squared distance of the matrices to the identity
    ema_decay: float = 0.98  # of the mean of the weights that is measured after each epoch
    clip: float = 1.0
    start_weight: float = START_WEIGHT


def projection_task(
    network: ProjectionNetwork, train: Sequence[GradedList], dev: Sequence[GradedList], recipe: Recipe
) -> Task[list[GradedList]]:
    """Projections that are fitted to lists, and measured on those of dev."""
    identity = torch.eye(network.matrices.shape[1])

    def losses(batch: Sequence[GradedList]) -> Iterator[Tensor]:
        apart = [(grades[:, None] - grades[None, :]).clamp(min=0) for *_, grades in batch]
        losses = [ranknet(network(graded), each) for graded, each in zip(batch, apart, strict=True)]
        yield torch.stack(losses).mean() + recipe.anchor * ((network.matrices - identity) ** 2).sum()

    return Task(
        network,
        -(-len(train) // recipe.queries),
        rate=lambda name, _: (recipe.weight_rate if name == "weights" else recipe.learning_rate, 0.0),
        batches=lambda seed: shuffled(train, recipe.queries, recipe.epochs, np.random.default_rng(seed)),
        losses=losses,
        score=lambda: float(np.mean(network.correlations(dev))),
    )


FIGURES = "Spearman's correlation with the grades, mean over queries. The mean of the seeds is published."


@dataclass
class ProjectionTraining(Training):
    """Facet projections, the mean of the seeds, fitted to graded pairs over the vectors of an index.

    Sources are files of graded pairs, an index of their papers, and papers to leave out; the first file of
    dev chooses the epochs.
    """

    recipe: Recipe = Recipe()

    def open(self) -> dict[str, Any]:
        _, self._reader = self.open_index()
        self._encoder = encoder_of(self._reader)
        return {"index": self._reader.manifest.digest}

    def fit(self) -> None:
        train, dev = read_indexed_lists(self.sources, self._reader)
        check_dev(dev, self.sources)
        vectors, marked, (lists, *of_dev) = read_lists(self._reader, [train, *dev.values()])
        log.info("fitting to %d lists, %d papers", len(lists), len(papers_of(train)))
        recipe, network = self.recipe, ProjectionNetwork(vectors, marked, self.recipe.start_weight)
        task = projection_task(network, lists, of_dev[0], recipe)
        schedule = Schedule(recipe.epochs, recipe.clip, warm_up=0.1, ema_decay=recipe.ema_decay)
        fitted = fit_seeds(task, schedule, self.run.seeds, self.work)
        self._published = list(fitted.values())[-1]
        identity = torch.eye(vectors.whole.shape[1]).repeat(FACETS, 1, 1)
        compared = {"untrained": {**self._published, "matrices": identity}, **fitted}
        self._figures = {
            f"{file} | {label}": with_weights(network, each, partial(network.correlations, graded))
            for file, graded in zip(dev, of_dev, strict=True)
            for label, each in compared.items()
        }
        self._pairs = sum(len(each.candidates) for each in lists)

    def publish(self, folder: Path) -> Card:
        training = {**self.made_from, "seeds": list(self.run.seeds), "pairs": self._pairs}
        model = ProjectionModel(projections_of(self._published), self._encoder, training)
        write_model(folder, model)
        caption = f"{FIGURES} Untrained: the published weights of the terms, but the vectors as they are."
        return projections_card(model, self._figures, "learned from", caption)


def projections_card(
    model: ProjectionModel, figures: Mapping[str, Sequence[float]], learned: str, caption: str
) -> Card:
    """The card of projections that were ``learned`` in a way."""
    encoder, weights = model.encoder["name"], model.encoder["weights_sha256"][:12]
    return Card(
        name=reader_name("facet-projections", encoder),
        purpose=f"Reranks candidates by stored vectors of {encoder} alone: a linear projection for each "
        f"facet and late interaction of the projected vectors, {learned} {model.training['pairs']:,} graded "
        "pairs.",
        input=f"the vectors that an index stores of {encoder} (weights {weights})",
        caption=caption,
        columns=("pairs", "weights", *BY_FACET),
        figures=figures,
        limits=GRADES_LIMITS,
    )
