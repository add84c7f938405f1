"""The objectives of ASPIRE: triplet margin losses over co-cited papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.train.encoder.recipe import Settings

FIRST_EXTENT = 10.0
"""Annealing starts with a lambda at which the largest cost times lambda is at most this."""
ROUNDS = 10
"""Rounds for each lambda while annealing, and between two checks of the marginals."""


def transport(
    costs: Tensor,
    rows: Tensor,
    columns: Tensor,
    regularization: float = 20.0,
    tolerance: float = 1e-3,
    max_rounds: int = 200,
) -> Tensor:
    """The regularized cost (pairs,) of moving the masses of the rows to the columns.

    ``costs`` is (pairs, rows, columns); ``rows`` (pairs, rows) and ``columns`` (pairs, columns) are
    logarithms of masses that sum to 1, minus infinity for padding. The value is

        min over plans P with these marginals of  <P, C> + KL(P | rows x columns) / lambda

    (Cuturi, 2013; lambda is ``regularization``), the loss that geomloss computes for ASPIRE in training with
    the blur 1 / lambda. It is computed as its dual at the optimal potentials f and g,

        <rows, f> + <columns, g> - (sum of P - 1) / lambda,  P_ij = r_i c_j exp(lambda (f_i + g_j - C_ij)),

    these held constant: by the envelope theorem (Peyré and Cuturi, 2019, section 9.1) the gradient with
    respect to the costs is then the plan P, and with respect to the masses the potentials. Iteration stops
    when the error of the plan's marginals (summed over the rows) is at most ``tolerance``, or after
    ``max_rounds``. Computed in double precision; the result has the type of the costs.

    >>> costs, halves = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), torch.tensor([[0.5, 0.5]]).log()
    >>> cost = transport(costs, halves, halves, math.log(4))  # of the plan [[0.4, 0.1], [0.1, 0.4]]
    >>> plan_cost, divergence = 0.2, 0.8 * math.log(0.4 / 0.25) + 0.2 * math.log(0.1 / 0.25)
    >>> round(cost.item(), 4), round(plan_cost + divergence / math.log(4), 4)
    (0.339, 0.339)
    """
    exact = costs.double()
    log_rows, log_columns = rows.double(), columns.double()
    f, g = potentials(
        exact.detach(), log_rows.detach(), log_columns.detach(), regularization, tolerance, max_rounds
    )
    exponents = _log_plan(exact, log_rows, log_columns, f, g, regularization)
    excess = exponents.exp().sum((1, 2)) - 1
    value = (log_rows.exp() * f).sum(1) + (log_columns.exp() * g).sum(1) - excess / regularization
    return value.to(costs.dtype)


@torch.no_grad()
def potentials(
    costs: Tensor,
    rows: Tensor,
    columns: Tensor,
    regularization: float = 20.0,
    tolerance: float = 1e-3,
    max_rounds: int = 200,
) -> tuple[Tensor, Tensor]:
    """Potentials f (pairs, rows) and g (pairs, columns) by Sinkhorn iteration on logarithms.

    Lambda is annealed: it doubles from a value at which all costs are nearly equal to ``regularization``, so
    that large costs need no more rounds than small ones. Parameters are those of `transport`.

    >>> costs, halves = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), torch.tensor([[0.5, 0.5]]).log()
    >>> f, g = potentials(costs, halves, halves, math.log(4))
    >>> (math.log(4) * (f[:, :, None] + g[:, None] - costs)).exp() / 4  # the plan
    tensor([[[0.4000, 0.1000],
             [0.1000, 0.4000]]])
    """
    extent = regularization * float(costs.max()) / FIRST_EXTENT
    stages = max(0, math.ceil(math.log2(extent))) if extent > 0 else 0
    f, g = torch.zeros_like(rows), torch.zeros_like(columns)
    for stage in range(stages, -1, -1):
        strength = regularization / 2**stage
        to_rows = columns.unsqueeze(1) - strength * costs
        to_columns = rows.unsqueeze(2) - strength * costs
        u, v = strength * f, strength * g
        for number in range(1, (max_rounds if stage == 0 else ROUNDS) + 1):
            before, u = u, -torch.logsumexp(to_rows + v.unsqueeze(1), 2)
            v = -torch.logsumexp(to_columns + u.unsqueeze(2), 1)
            if stage == 0 and number % ROUNDS == 0:
                # After a round the columns' masses are exact; u then changes by the error of the rows'.
                error = rows.exp() * torch.expm1(before - u).abs()
                if float(error.sum(1).max()) <= tolerance:
                    break
        f, g = u / strength, v / strength
    return f, g


def _log_plan(
    costs: Tensor, rows: Tensor, columns: Tensor, f: Tensor, g: Tensor, regularization: float
) -> Tensor:
    """Logarithms of a plan; minus infinity, without gradient, for padding."""
    real = rows.isfinite().unsqueeze(2) & columns.isfinite().unsqueeze(1)
    masses = torch.where(real, rows.unsqueeze(2) + columns.unsqueeze(1), 0.0)
    gains = f.unsqueeze(2) + g.unsqueeze(1) - costs
    return torch.where(real, masses + regularization * gains, -math.inf)


class Vectors(NamedTuple):
    """Vectors of papers: ``sentences`` (papers, sentences, dimension), ``whole`` (papers, dimension).

    Papers are padded to the most sentences; ``present`` (papers, sentences) bool is False for padding.
    """

    sentences: Tensor
    present: Tensor
    whole: Tensor

    def at(self, rows: Tensor) -> Vectors:
        """The vectors of some papers, by their numbers (int64)."""
        return Vectors(self.sentences[rows], self.present[rows], self.whole[rows])


class Triplets(NamedTuple):
    """Queries, papers that are co-cited with them, and papers that are not, row by row.

    ``alignment`` (triplets, 2) int64 has the positions of the aligned sentences of query and positive, and
    ``negative_alignment`` (triplets,) the position of the sentence by which the negative was aligned with the
    query of the pair that it comes from.
    """

    query: Vectors
    positive: Vectors
    negative: Vectors
    alignment: Tensor
    negative_alignment: Tensor


def losses(objective: str, triplets: Triplets, settings: Settings) -> Tensor:
    """The losses (triplets,) of an objective; with several distances (ts+ot) it is the sum of theirs.

    >>> def at(place):
    ...     return Vectors(torch.tensor([[[place]]]), torch.tensor([[True]]), torch.tensor([[place]]))
    >>> triplets = Triplets(at(0.0), at(1.0), at(1.5), torch.tensor([[0, 0]]), torch.tensor([0]))
    >>> losses("bi-encoder", triplets, Settings(margin=1.0)), losses("ts+ot", triplets, Settings(margin=1.0))
    (tensor([0.5000]), tensor([1.]))
    """
    query, positive, negative = triplets[:3]
    parts = []
    if objective in ALIGNED:
        parts.append(aligned_distances(triplets))
    if objective in DISTANCES:
        distance = DISTANCES[objective]
        parts.append((distance(query, positive, settings), distance(query, negative, settings)))
    return torch.stack([F.relu(settings.margin + near - far) for near, far in parts]).sum(0)


def aligned_distances(triplets: Triplets) -> tuple[Tensor, Tensor]:
    """L2 distances of two aligned sentences: of the query's from the positive's and from the negative's.

    The negative's is the one by which it was aligned in its own pair. (The authors' code takes the query's
    sentence at the position that the query of that pair had.)

    >>> def papers(*places):
    ...     sentences = torch.tensor([places]).unsqueeze(2)
    ...     return Vectors(sentences, torch.ones(1, len(places), dtype=torch.bool), sentences.mean(1))
    >>> first, second, third = papers(0.0, 5.0), papers(9.0, 4.5), papers(6.0, 9.0)
    >>> aligned_distances(Triplets(first, second, third, torch.tensor([[1, 1]]), torch.tensor([0])))
    (tensor([0.5000]), tensor([1.]))
    """
    rows = torch.arange(len(triplets.alignment), device=triplets.alignment.device)
    query = triplets.query.sentences[rows, triplets.alignment[:, 0]]
    positive = triplets.positive.sentences[rows, triplets.alignment[:, 1]]
    negative = triplets.negative.sentences[rows, triplets.negative_alignment]
    return _length(query - positive), _length(query - negative)


def whole_distance(query: Vectors, candidate: Vectors, _: Settings) -> Tensor:
    """L2 distance (pairs,) of the vectors of whole papers, or of single sentences."""
    return _length(query.whole - candidate.whole)


def transport_cost(query: Vectors, candidate: Vectors, settings: Settings) -> Tensor:
    """The cost (pairs,) of optimal transport between the sentences of two papers, as their distance.

    The cost of moving one sentence to another is their L2 distance; the masses of a paper's sentences are
    softmax(-distance to the nearest sentence of the other paper / tau). Gradients flow through the masses
    too, as in the authors' code.

    >>> query = Vectors(torch.tensor([[[0.0]]]), torch.tensor([[True]]), torch.tensor([[0.0]]))
    >>> sentences = torch.tensor([[[1.0], [3.0]]])
    >>> candidate = Vectors(sentences, torch.tensor([[True, True]]), sentences.mean(1))
    >>> transport_cost(query, candidate, Settings(temperature=2 / math.log(3)))  # 3/4 * 1 + 1/4 * 3
    tensor([1.5000])
    """
    distances, real = _pairwise(query, candidate)
    masked = distances.masked_fill(~real, math.inf)
    rows, columns = (torch.log_softmax(-masked.amin(axis) / settings.temperature, 1) for axis in (2, 1))
    return transport(distances, rows, columns, settings.regularization)


def smallest_distance(query: Vectors, candidate: Vectors, _: Settings) -> Tensor:
    """The smallest L2 distance (pairs,) of a sentence of the query and a sentence of the candidate.

    >>> query = Vectors(torch.tensor([[[0.0]]]), torch.tensor([[True]]), torch.tensor([[0.0]]))
    >>> sentences = torch.tensor([[[2.0], [1.0]]])
    >>> candidate = Vectors(sentences, torch.tensor([[True, False]]), sentences.mean(1))  # 1.0 is padding
    >>> smallest_distance(query, candidate, Settings())
    tensor([2.])
    """
    distances, real = _pairwise(query, candidate)
    return distances.masked_fill(~real, math.inf).flatten(1).amin(1)


def attention_distance(query: Vectors, candidate: Vectors, _: Settings) -> Tensor:
    """L2 distances of all pairs of sentences, weighted by softmax(-distance) over all pairs (pairs,).

    >>> query = Vectors(torch.tensor([[[0.0]]]), torch.tensor([[True]]), torch.tensor([[0.0]]))
    >>> sentences = torch.tensor([[[0.0], [math.log(3)]]])
    >>> candidate = Vectors(sentences, torch.tensor([[True, True]]), sentences.mean(1))
    >>> attention_distance(query, candidate, Settings())  # 3/4 * 0 + 1/4 * log(3)
    tensor([0.2747])
    """
    distances, real = _pairwise(query, candidate)
    weights = torch.softmax((-distances).masked_fill(~real, -math.inf).flatten(1), 1)
    return (weights * distances.flatten(1)).sum(1)


def _pairwise(query: Vectors, candidate: Vectors) -> tuple[Tensor, Tensor]:
    """L2 distances (pairs, sentences, sentences), and a mask that is False for padding."""
    distances = torch.cdist(query.sentences, candidate.sentences, compute_mode="donot_use_mm_for_euclid_dist")
    return distances, query.present.unsqueeze(2) & candidate.present.unsqueeze(1)


def _length(differences: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(differences, dim=1)
    return lengths  # its gradient is 0, not NaN, for the zero differences of equal texts


DISTANCES: Mapping[str, Callable[[Vectors, Vectors, Settings], Tensor]] = {
    "bi-encoder": whole_distance,
    "ot": transport_cost,
    "ts+ot": transport_cost,
    "max": smallest_distance,
    "att": attention_distance,
    "cosent": whole_distance,
}
"""Distances of two papers, by the objectives (`qbe.train.encoder.recipe.OBJECTIVES`) that have one."""

ALIGNED = ("ts", "ts+ot", "abs")
"""The objectives with the distance of aligned sentences."""
