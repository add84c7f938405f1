"""The objectives of ASPIRE (Mysore et al., 2022): triplet margin losses over co-cited papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.search.matching import entropic_transport


@dataclass(frozen=True, slots=True)
class Settings:
    """How distances are computed and compared; the values are those of the paper's code.

    The distance of a positive should be smaller than that of a negative by ``margin``. ``temperature`` (tau)
    and ``regularization`` (lambda) are the transport's: masses are softmax(-smallest distance / tau), so that
    with 5000 all sentences have nearly the same mass; the plan is regularized by its entropy / lambda (20 is
    a blur of 0.05).
    """

    margin: float = 1.0
    temperature: float = 5000.0
    regularization: float = 20.0


DEFAULT_SETTINGS = Settings()


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
    """L2 distance (pairs,) of the vectors of whole papers."""
    return _length(query.whole - candidate.whole)


def transport_cost(query: Vectors, candidate: Vectors, settings: Settings) -> Tensor:
    """The regularized cost (pairs,) of optimal transport between the sentences of two papers.

    The cost of moving one sentence to another is their L2 distance; the masses of a paper's sentences are
    softmax(-distance to the nearest sentence of the other paper / tau). The value is

        min over plans P with these marginals of  <P, C> + KL(P | rows x columns) / lambda

    (Cuturi, 2013), the loss that geomloss computes for ASPIRE in training with the blur 1 / lambda. The plan
    is computed in double precision (`qbe.search.matching`) and held constant: by the envelope theorem (Peyré
    and Cuturi, 2019, section 9.1) the gradient with respect to the costs is then the plan. The masses are
    held constant too; with the default temperature their own gradient, which the authors' code has, is
    negligible.

    >>> query = Vectors(torch.tensor([[[0.0]]]), torch.tensor([[True]]), torch.tensor([[0.0]]))
    >>> sentences = torch.tensor([[[1.0], [3.0]]])
    >>> candidate = Vectors(sentences, torch.tensor([[True, True]]), sentences.mean(1))
    >>> transport_cost(query, candidate, Settings(temperature=2 / math.log(3)))  # 3/4 * 1 + 1/4 * 3
    tensor([1.5000])
    """
    costs = torch.cdist(query.sentences, candidate.sentences, compute_mode="donot_use_mm_for_euclid_dist")
    real = query.present.unsqueeze(2) & candidate.present.unsqueeze(1)
    exact = costs.detach().double().masked_fill(~real, math.inf)
    rows, columns = (torch.softmax(-exact.amin(axis) / settings.temperature, 1) for axis in (2, 1))
    plans = torch.from_numpy(
        entropic_transport(
            exact.cpu().numpy(), rows.cpu().numpy(), columns.cpu().numpy(), settings.regularization
        )
    ).to(costs.device)
    apart = rows[:, :, None] * columns[:, None]
    divergence = torch.special.xlogy(plans, plans / apart.clamp(min=1e-300)).sum((1, 2))
    cost = (plans * costs.double()).sum((1, 2))
    value: Tensor = cost + divergence / settings.regularization
    return value.to(costs.dtype)


def _length(differences: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(differences, dim=1)
    return lengths  # its gradient is 0, not NaN, for the zero differences of equal texts


class Objective(NamedTuple):
    """An objective: its name in the paper, and what it needs.

    ``rate`` is the learning rate that the authors settled on for computer science. ``distance`` compares two
    papers; where ``aligned``, the distance of two aligned sentences counts.
    """

    name: str
    rate: float
    distance: Callable[[Vectors, Vectors, Settings], Tensor] | None = None
    aligned: bool = False


OBJECTIVES: Mapping[str, Objective] = {
    "bi-encoder": Objective("SPECTER-CoCite", 2e-5, whole_distance),
    "ts": Objective("TSASPIRE", 2e-5, aligned=True),
    "ot": Objective("OTASPIRE", 3e-5, transport_cost),
    "ts+ot": Objective("TS+OTASPIRE", 2e-5, transport_cost, aligned=True),
}


def losses(objective: Objective, triplets: Triplets, settings: Settings) -> Tensor:
    """The losses (triplets,) of an objective; with several distances (ts+ot) it is the sum of theirs.

    >>> def at(place):
    ...     return Vectors(torch.tensor([[[place]]]), torch.tensor([[True]]), torch.tensor([[place]]))
    >>> triplets = Triplets(at(0.0), at(1.0), at(1.5), torch.tensor([[0, 0]]), torch.tensor([0]))
    >>> [losses(OBJECTIVES[name], triplets, Settings()) for name in ("bi-encoder", "ts+ot")]
    [tensor([0.5000]), tensor([1.])]
    """
    query, positive, negative = triplets[:3]
    parts = []
    if objective.aligned:
        parts.append(aligned_distances(triplets))
    if objective.distance:
        near, far = (objective.distance(query, other, settings) for other in (positive, negative))
        parts.append((near, far))
    return torch.stack([F.relu(settings.margin + near - far) for near, far in parts]).sum(0)
