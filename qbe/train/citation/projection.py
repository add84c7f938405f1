"""Fitting the projection: late interaction of projected vectors ranks what a paper cites above the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.cite.projected import TERMS, Projection
from qbe.errors import CorpusError
from qbe.train.citation.recipe import ProjectionSchedule
from qbe.train.stored_vectors import StoredVectors, best_within

log = logging.getLogger(__name__)
Ints = NDArray[np.int64]

START_WEIGHTS = (8.0, 14.0, 2.0)
"""Of the TERMS: as large as the similarities need for a softmax over some hundred candidates."""


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
        sentences = F.normalize(self.vectors.sentences[rows] @ self.matrices[0].T, dim=-1)
        whole = F.normalize(self.vectors.whole[candidates] @ self.matrices[1].T, dim=-1)
        query_rows, query_places = self.vectors.rows(queries)
        query_sentences = F.normalize(self.vectors.sentences[query_rows] @ self.matrices[0].T, dim=-1)
        query_whole = F.normalize(self.vectors.whole[queries] @ self.matrices[1].T, dim=-1)
        cosines = query_sentences @ sentences.T
        best = best_within(cosines, places, len(candidates))
        counts = torch.bincount(query_places, minlength=len(queries)).float()
        forward = best.new_zeros(len(queries), len(candidates)).index_add(0, query_places, best)
        nearest = cosines.new_full((len(queries), len(rows)), -2.0)
        nearest = nearest.scatter_reduce(0, query_places[:, None].expand(-1, len(rows)), cosines, "amax")
        backward = nearest.new_zeros(len(queries), len(candidates)).index_add(1, places, nearest)
        backward = backward / torch.bincount(places, minlength=len(candidates)).float()
        parts = (forward / counts[:, None], query_whole @ whole.T, backward)
        return torch.einsum("tqc,t->qc", torch.stack(parts), self.weights)

    def projection(self) -> Projection:
        """What was fitted, for search."""
        sentences, whole = self.matrices.detach().double().numpy()
        return Projection(sentences.copy(), whole.copy(), self.weights.detach().double().numpy().copy())


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


def fit_projection(
    network: ProjectionNetwork,
    cited: Mapping[int, Ints],
    nearest: Mapping[int, Ints],
    years: NDArray[np.float64],
    schedule: ProjectionSchedule,
    seed: int,
    figure: Callable[[Projection], float] | None = None,
) -> tuple[Projection, int]:
    """Fit the network to queries, by row, with what they cite and the ``nearest`` papers of the first stage.

    ``figure`` measures a projection on dev: with it the best epoch is returned, and the fitting ends after
    ``patience`` worse ones; without it the last. Returns the projection and the number of its epoch. Raises
    CorpusError where no query cites a paper.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    groups = [
        {"params": [network.matrices], "lr": schedule.learning_rate},
        {"params": [network.weights], "lr": schedule.weight_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    identity = torch.eye(network.matrices.shape[1])
    queries = sorted(query for query in cited if len(cited[query]))
    if not queries:
        raise CorpusError("expected papers that cite others to train on, found none; give more citations")
    best: tuple[float, Projection, int] | None = None
    for epoch in range(1, schedule.epochs + 1):
        losses = []
        order = rng.permutation(len(queries))
        for first in range(0, len(order), schedule.queries):
            chosen = [queries[place] for place in order[first : first + schedule.queries]]
            candidates = _candidates(chosen, cited, nearest, schedule, rng)
            loss = _loss(network, chosen, candidates, cited, years)
            loss = loss + schedule.anchor * ((network.matrices - identity) ** 2).sum()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        measured = -float(epoch) if figure is None else figure(network.projection())
        log.info("seed %d, epoch %d: loss %.4f, dev %.4f", seed, epoch, np.mean(losses), measured)
        if figure is None or best is None or measured > best[0]:
            best = (measured, network.projection(), epoch)
        elif epoch - best[2] >= schedule.patience:
            break
    assert best is not None
    return best[1], best[2]


def _candidates(
    queries: Sequence[int],
    cited: Mapping[int, Ints],
    nearest: Mapping[int, Ints],
    schedule: ProjectionSchedule,
    rng: np.random.Generator,
) -> Ints:
    parts = [cited[query] for query in queries]
    parts += [nearest[query][: schedule.nearest] for query in queries]
    parts += [rng.choice(nearest[query], min(schedule.random, len(nearest[query]))) for query in queries]
    return np.unique(np.concatenate(parts))


def _loss(
    network: ProjectionNetwork,
    queries: Sequence[int],
    candidates: Ints,
    cited: Mapping[int, Ints],
    years: NDArray[np.float64],
) -> Tensor:
    scores = network(torch.tensor(queries), torch.tensor(candidates))
    losses = []
    for place, query in enumerate(queries):
        may = (candidates != query) & ~(years[candidates] > years[query])
        right = np.isin(candidates, cited[query])
        losses.append(citation_loss(scores[place], torch.tensor(right), torch.tensor(may | right)))
    return torch.stack(losses).mean()
