"""Training of the facet projections: the terms of `qbe.search.projections`, fitted to graded pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qbe.index.dense.scoring import kept_or_all
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.models.export.staging import staged_folder
from qbe.runs import GradedLists, GradedPair, read_graded_pairs
from qbe.search.projections import TERMS, FacetProjection, ProjectionModel, write_model
from qbe.train.artifacts import Folders, RunOptions, Sources, begin
from qbe.train.card import GRADES_LIMITS, Card, facet_table, reader_name
from qbe.train.correlation import check_dev, facet_correlations
from qbe.train.late_interaction import ProjectedPapers, StoredVectors, vector_terms
from qbe.train.pairs import encoder_of, held_by, joined_lists, papers_of, within, without, without_evaluated
from qbe.train.reranker.task import logistic
from qbe.train.trainer import Schedule, fit_seeds, shuffled
from qbe.train.weights import Weights, with_weights
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


DEFAULT_RECIPE = Recipe()

Figures = Mapping[str, Mapping[str, Sequence[float]]]
"""Spearman's correlations by facet, by weights and name of the file of pairs."""

FIGURES = "Spearman's correlation with the grades, mean over queries. The mean of the seeds is published."
"""What the cards say of them."""


def train(sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = DEFAULT_RECIPE) -> Figures:
    """Train the facet projections, measure them on each file of dev, and publish their mean with a card.

    ``sources`` are files of graded pairs, an index of their papers, and papers to leave out; the first file
    of dev chooses the epochs. Queries of dev are not trained on. Returns Spearman's correlations, also of the
    ``untrained`` vectors. Raises CorpusError for pairs that cannot be read or that the index lacks, and for
    those of dev that no correlation can be computed with, IndexFormatError for an index without vectors,
    ModelError for a file in the work folder that is damaged, OutputError where nothing can be written.
    """
    pairs, dev = joined_lists(sources.train), [read_graded_pairs(file) for file in sources.dev]
    pairs = without(pairs, frozenset(query for lists in dev for query in lists))
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        encoder = encoder_of(reader)
        provenance = begin(sources, folders, run, recipe, index=reader.manifest.digest)
        pairs = without_evaluated(pairs, reader, sources.leave_out)
        held = held_by(reader, papers_of(pairs, *dev))
        sets = [within(each, held) for each in (pairs, *dev)]
        for file, lists in zip(sources.dev, sets[1:], strict=True):
            check_dev(lists, file)
        stored = read_lists(reader, sets)
    log.info("fitting to %d lists, %d papers", len(stored.sets[0]), len(papers_of(sets[0])))
    fitted = fit_seeds(lambda _: ProjectionTask(stored, recipe), recipe.schedule(), run.seeds, folders.work)
    published = list(fitted.values())[-1]
    untrained = {**published, "matrices": torch.eye(stored.vectors.whole.shape[1]).repeat(3, 1, 1)}
    network = ProjectionTask(stored, recipe).network
    names = [f"{file.parent.name}/{file.name}" for file in sources.dev]

    def measured(weights: Weights) -> dict[str, Sequence[float]]:
        figures = with_weights(network, weights, lambda: list(map(network.correlations, stored.sets[1:])))
        return dict(zip(names, figures, strict=True))

    figures = {name: measured(weights) for name, weights in {"untrained": untrained, **fitted}.items()}
    count = sum(len(each.candidates) for each in stored.sets[0])
    model = ProjectionModel(
        projections_of(published), encoder, {**provenance, "seeds": list(run.seeds), "pairs": count}
    )
    card = projections_card(
        model,
        figures,
        "learned from",
        f"{FIGURES} Untrained: the published weights of the terms, but the vectors as they are.",
        "facet-projections --index DIR",
    )
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        card.write(staged)
    return figures


def figures_table(figures: Figures) -> str:
    """A table of correlations, by the file of pairs and the weights."""
    rows: list[list[str | float]] = [
        [file, weights, *by_file[file]]
        for file in next(iter(figures.values()))
        for weights, by_file in figures.items()
    ]
    return facet_table(["pairs", "weights"], rows)


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
        figures=caption,
        table=figures_table(figures),
        data=model.training["data"],
        command=command,
        limits=GRADES_LIMITS,
    )
