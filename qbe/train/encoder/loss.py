"""The objectives of ASPIRE: a paper is to be nearer to one cited beside it than to another, by a margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.train.encoder.recipe import Settings
from qbe.train.encoder.transport import transport


class Vectors(NamedTuple):
    """Vectors of papers: ``sentences`` (papers, most sentences, dimension), ``whole`` (papers, dimension).

    ``present`` (papers, most sentences) bool is False where a paper has no such sentence.
    """

    sentences: Tensor
    present: Tensor
    whole: Tensor

    def at(self, rows: Tensor) -> Vectors:
        """Those of some papers, by their numbers (int64)."""
        return Vectors(self.sentences[rows], self.present[rows], self.whole[rows])


class Triplets(NamedTuple):
    """Queries, papers that were cited beside them, and others, row by row.

    ``told`` (triplets, 2) int64 are the positions of the sentences of query and positive that belong
    together, and ``told_negative`` (triplets,) is that of the sentence by which the negative was aligned
    with its own query.
    """

    query: Vectors
    positive: Vectors
    negative: Vectors
    told: Tensor
    told_negative: Tensor


Loss = Callable[[Triplets, Settings], Tensor]
"""From triplets to their losses (triplets,)."""


def bi_encoder(triplets: Triplets, settings: Settings) -> Tensor:
    """SPECTER-CoCite: one vector a paper, L2 distances (CoSentBert: one vector a sentence)."""
    query, positive, negative = triplets[:3]
    return _margin(
        _length(query.whole - positive.whole), _length(query.whole - negative.whole), settings.margin
    )


def single_match(triplets: Triplets, settings: Settings) -> Tensor:
    """TSASPIRE and absASPIRE: the L2 distance of two sentences that are told.

    A negative is compared by the query's told sentence and by the one that its own alignment told. (The
    authors' code takes the query's sentence at the position that the negative's query had.)
    """
    rows = torch.arange(len(triplets.told), device=triplets.told.device)
    query = triplets.query.sentences[rows, triplets.told[:, 0]]
    positive = triplets.positive.sentences[rows, triplets.told[:, 1]]
    negative = triplets.negative.sentences[rows, triplets.told_negative]
    return _margin(_length(query - positive), _length(query - negative), settings.margin)


def optimal_transport(triplets: Triplets, settings: Settings) -> Tensor:
    """OTASPIRE: what transport between all sentences costs; see `transported`."""
    return _compared(triplets, settings, transported)


def single_match_and_transport(triplets: Triplets, settings: Settings) -> Tensor:
    """TS+OTASPIRE: the sum of both losses."""
    return single_match(triplets, settings) + optimal_transport(triplets, settings)


def closest_pair(triplets: Triplets, settings: Settings) -> Tensor:
    """maxASPIRE: the least L2 distance of any two sentences."""
    return _compared(triplets, settings, closest)


def attention(triplets: Triplets, settings: Settings) -> Tensor:
    """attASPIRE: all pairs of sentences, weighted by a softmax over their closeness."""
    return _compared(triplets, settings, attended)


OBJECTIVES: Mapping[str, Loss] = {
    "bi-encoder": bi_encoder,
    "ts": single_match,
    "ot": optimal_transport,
    "ts+ot": single_match_and_transport,
    "abs": single_match,
    "max": closest_pair,
    "att": attention,
    "cosent": bi_encoder,
}
"""By the names of `qbe.train.encoder.recipe`."""


def transported(query: Vectors, candidate: Vectors, settings: Settings) -> Tensor:
    """The cost (pairs,) of transport between the sentences of two papers, which is their distance.

    Moving a sentence to another costs their L2 distance; a sentence's mass is softmax(-its distance to the
    nearest of the other side / tau) among those of its side. Gradients flow through the masses too, as in the
    authors' code.
    """
    distances, real = _pairwise(query, candidate)
    apart = distances.masked_fill(~real, math.inf)
    rows, columns = (torch.log_softmax(-apart.amin(along) / settings.temperature, 1) for along in (2, 1))
    return transport(distances, rows, columns, settings.regularization)


def closest(query: Vectors, candidate: Vectors, _: Settings) -> Tensor:
    """The least L2 distance (pairs,) of a sentence of the one and a sentence of the other."""
    distances, real = _pairwise(query, candidate)
    return distances.masked_fill(~real, math.inf).flatten(1).amin(1)


def attended(query: Vectors, candidate: Vectors, _: Settings) -> Tensor:
    """L2 distances of all pairs of sentences, weighted by softmax(-distance) over all pairs (pairs,)."""
    distances, real = _pairwise(query, candidate)
    weights = torch.softmax((-distances).masked_fill(~real, -math.inf).flatten(1), 1)
    return (weights * distances.flatten(1)).sum(1)


def _compared(
    triplets: Triplets, settings: Settings, distance: Callable[[Vectors, Vectors, Settings], Tensor]
) -> Tensor:
    query, positive, negative = triplets[:3]
    return _margin(distance(query, positive, settings), distance(query, negative, settings), settings.margin)


def _pairwise(query: Vectors, candidate: Vectors) -> tuple[Tensor, Tensor]:
    """L2 distances (pairs, sentences, sentences), and which of them are of two real sentences."""
    distances = torch.cdist(query.sentences, candidate.sentences, compute_mode="donot_use_mm_for_euclid_dist")
    return distances, query.present.unsqueeze(2) & candidate.present.unsqueeze(1)


def _length(differences: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(differences, dim=1)
    return lengths  # whose gradient is 0 at 0, where equal texts stand


def _margin(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    return F.relu(margin + positive - negative)
