"""Fitting the facet projections: what is graded higher is scored higher."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from qbe.rerank.projections import FacetProjection
from qbe.train.fitting import ScheduledOptimizer, update_average
from qbe.train.projections.data import StoredLists
from qbe.train.projections.network import FACETS, GradedList, ProjectionNetwork
from qbe.train.projections.recipe import Recipe
from qbe.train.reranker.correlation import mean_correlation, spearman
from qbe.train.reranker.loss import logistic
from qbe.types import Facet

log = logging.getLogger(__name__)

Correlations = Mapping[Facet, float]
"""Means over queries of Spearman's correlation with the grades, by facet."""


def fit(lists: StoredLists, recipe: Recipe, seed: int) -> Mapping[Facet, FacetProjection]:
    """Fit to the first set of lists; the epoch with the best mean correlation on the second is returned."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    train, dev, *_ = lists.sets
    network = ProjectionNetwork(lists.vectors, lists.marked, recipe.start_weight)
    groups = [
        {"params": [network.matrices], "lr": recipe.learning_rate},
        {"params": [network.weights], "lr": recipe.weight_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    steps = recipe.epochs * -(-len(train) // recipe.queries)
    scheduled = ScheduledOptimizer(optimizer, network.parameters(), steps, clip=recipe.clip)
    mean = ProjectionNetwork(lists.vectors, lists.marked, recipe.start_weight)
    average, step = dict(mean.named_parameters()), 0
    identity = torch.eye(network.matrices.shape[1])
    best: tuple[float, Mapping[Facet, FacetProjection]] | None = None
    for epoch in range(1, recipe.epochs + 1):
        losses = []
        order = rng.permutation(len(train))
        for first in range(0, len(order), recipe.queries):
            chosen = [train[place] for place in order[first : first + recipe.queries]]
            loss = torch.stack([_loss(network, graded) for graded in chosen]).mean()
            anchored = loss + recipe.anchor * ((network.matrices - identity) ** 2).sum()
            torch.autograd.backward(anchored)
            scheduled.step(step)
            step += 1
            update_average(average, network, recipe.memory)
            losses.append(loss.item())
        measured = float(np.mean([*correlations(mean, dev).values()]))
        log.info("seed %d, epoch %d: loss %.4f, dev %.4f", seed, epoch, np.mean(losses), measured)
        if best is None or measured > best[0]:
            best = measured, mean.projections()
    assert best is not None
    return best[1]


def _loss(network: ProjectionNetwork, graded: GradedList) -> torch.Tensor:
    scores = network(graded)
    columns = range(len(FACETS))
    return torch.stack([logistic(scores[:, facet], graded.grades[:, facet]) for facet in columns]).mean()


@torch.no_grad()
def correlations(network: ProjectionNetwork, lists: Sequence[GradedList]) -> Correlations:
    """Spearman's correlations; lists whose grades in a facet are all alike are left out for it."""
    values: dict[Facet, list[float]] = {facet: [] for facet in FACETS}
    for graded in lists:
        scores = network(graded).numpy()
        for place, facet in enumerate(FACETS):
            correlation = spearman(scores[:, place].tolist(), graded.grades[:, place].tolist())
            if correlation is not None:
                values[facet].append(correlation)
    return {facet: mean_correlation(each) for facet, each in values.items()}


def network_of(
    lists: StoredLists, projections: Mapping[Facet, FacetProjection], recipe: Recipe
) -> ProjectionNetwork:
    """A network of given projections."""
    network = ProjectionNetwork(lists.vectors, lists.marked, recipe.start_weight)
    with torch.no_grad():
        for place, facet in enumerate(FACETS):
            network.matrices[place] = torch.tensor(projections[facet].matrix)
            network.weights[place] = torch.tensor(projections[facet].weights)
    return network


def mean_projections(
    fitted: Sequence[Mapping[Facet, FacetProjection]],
) -> Mapping[Facet, FacetProjection]:
    """The means of several fits' matrices and weights (Wortsman et al., 2022: they begin alike)."""
    return {
        facet: FacetProjection(
            np.mean([each[facet].matrix for each in fitted], axis=0),
            np.mean([each[facet].weights for each in fitted], axis=0),
        )
        for facet in FACETS
    }
