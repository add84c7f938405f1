"""All losses: of graded lists, of grades, of citations, and ASPIRE's of co-cited papers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from qbe.query import OTHER_TO, SIMILAR_FROM
from qbe.search.matching import entropic_transport
from qbe.types import Facet

FACETS = len(Facet)
_BACKGROUND, _METHOD = (tuple(Facet).index(facet) for facet in (Facet.BACKGROUND, Facet.METHOD))


def ranknet(scores: Tensor, weights: Tensor) -> Tensor:
    """RankNet (Burges et al., 2005, eq. 3) of scores (..., candidates, facets), the mean over facets and
    lists.

    ``weights`` (..., candidates, candidates, facets) are of pairs whose first one should score higher.
    """
    losses = weights * F.softplus(-(scores[..., :, None, :] - scores[..., None, :, :]))
    return (losses.sum((-3, -2)) / weights.sum((-3, -2)).clamp(min=1e-9)).mean()


def order_weights(grades: Tensor, crossed: float) -> Tensor:
    """Weights (candidates, candidates, facets) of the orders that ``grades`` (candidates, facets) give: those
    that background and method give in opposite ways, by a grade or more, count ``crossed`` times in these
    facets.
    """
    apart = grades[:, None] - grades[None, :]
    background, method = apart[..., _BACKGROUND], apart[..., _METHOD]
    opposite = (background * method < 0) & (torch.minimum(background.abs(), method.abs()) >= 1)
    weights = apart.clamp(min=0)
    weights[..., [_BACKGROUND, _METHOD]] *= (1 + (crossed - 1) * opposite.float())[..., None]
    return weights


def list_loss(scores: Tensor, owners: Tensor, grades: Tensor, crossed: float = 1.0) -> Tensor:
    """`ranknet` of scores (lists, candidates, facets) with `order_weights` over the pairs of each list.

    ``owners`` (candidates,) are the lists of the candidates.
    """
    own = owners == torch.arange(len(scores), device=owners.device)[:, None]
    return ranknet(scores, order_weights(grades, crossed) * (own[:, :, None] & own[:, None])[..., None])


# Grades lie between LOWEST and LOWEST + RANGE, so that those at the ends of their scale can be met.
LOWEST, RANGE = -0.1, 3.2


def grades_of(scores: Tensor) -> Tensor:
    return LOWEST + RANGE * torch.sigmoid(scores)


def pair_loss(
    loss: str, scores: Tensor, owners: Tensor, truth: Tensor, margin: float, crossed: float
) -> Tensor:
    """The loss of scores (pairs, outputs) against their ``truth`` (pairs, outputs).

    ``bce`` is cross-entropy of a truth of 0 or 1 (Nogueira et al., 2020, eq. 1), ``margin`` that of ranking
    each two neighbours by their grades (SciFACE, 2026, section 3.10), of equal grades none; ``grades`` are
    squared errors, and `ranknet` within the lists of ``owners`` (pairs,).
    """
    if loss == "bce":
        return F.binary_cross_entropy_with_logits(scores, truth)
    if loss == "margin":
        signs = torch.sign(truth[0::2] - truth[1::2])
        lost = F.relu(margin - signs * (scores[0::2] - scores[1::2])) * signs.abs()
        return lost.sum() / signs.abs().sum().clamp(min=1)
    apart = (truth[:, None] - truth[None, :]).clamp(min=0)
    weights = order_weights(truth, crossed) if truth.shape[1] == FACETS else apart
    ranked = ranknet(scores, weights * (owners[:, None] == owners)[..., None])
    return F.mse_loss(grades_of(scores), truth) + ranked


def as_asked(grades: Tensor) -> Tensor:
    """Whether grades (pairs, 3) are of similar papers and whether they are of other ones, (pairs, 6)."""
    return torch.cat([grades >= SIMILAR_FROM, grades <= OTHER_TO], dim=1).to(grades.dtype)


def grade_loss(
    predicted: Tensor, grades: Tensor, *, differences: float, chances: float, crossed: float
) -> Tensor:
    """The loss of scores (pairs, 9), as of `qbe.models.cards.GradeModel`, against grades (pairs, 3).

    Squared errors of grades, weighted ``differences`` of two facets' and ``chances`` cross-entropy,
    `as_asked`. Pairs whose grades by background and method lie one apart or more, which alone teach to tell
    them apart, weigh ``1 + crossed``.
    """
    weights = 1 + crossed * ((grades[:, :1] - grades[:, 1:2]).abs() >= 1)
    error = predicted[:, :FACETS] - grades
    between = torch.stack([error[:, i] - error[:, j] for i, j in combinations(range(FACETS), 2)], dim=1)
    entropy = F.binary_cross_entropy_with_logits(predicted[:, FACETS:], as_asked(grades), reduction="none")
    parts = (error**2, differences * between**2, chances * entropy)
    return torch.stack([(weights * part).mean() for part in parts]).sum()


def citation_loss(scores: Tensor, cited: Tensor, candidates: Tensor) -> Tensor:
    """The mean over what is ``cited`` of the cross-entropy of one cited paper against all that are not; of
    scores (candidates,), of which ``candidates`` (a mask) count.
    """
    others = torch.logsumexp(scores[candidates & ~cited], 0)
    chosen = scores[candidates & cited]
    return (torch.logaddexp(chosen, others) - chosen).mean()


# Co-cited papers: the objectives of ASPIRE (Mysore et al., 2022), margins of distances.


class PaperVectors(NamedTuple):
    """Vectors of papers, padded to the most sentences."""

    sentences: Tensor  # (papers, sentences, dimension)
    present: Tensor  # (papers, sentences) bool, those that are no padding
    whole: Tensor  # (papers, dimension)
    marked: Tensor  # (papers, sentences, facets) bool, those of a facet

    def rows(self, rows: Tensor) -> "PaperVectors":
        return PaperVectors(*(part[rows] for part in self))


@dataclass(frozen=True, slots=True)
class Settings:
    """How distances are computed and compared."""

    margin: float = 1.0  # by which the distance of a positive should be smaller than that of a negative
    temperature: float = 0.5  # tau of the transport's masses, or of attention
    regularization: float = 20.0  # lambda of the transport's entropy; 20 is a blur of 0.05


class Triplets(NamedTuple):
    """Queries, papers that are co-cited with them, and papers that are not, row by row."""

    query: PaperVectors
    positive: PaperVectors
    negative: PaperVectors
    alignment: Tensor  # (triplets, 2) int64, the positions of the aligned sentences of query and positive
    # (triplets,), that of the sentence by which the negative was aligned in its own pair; the authors' code
    # takes the query's sentence at the position that the query of that pair had.
    negative_alignment: Tensor


def whole_distance(query: PaperVectors, candidate: PaperVectors, _: Settings) -> Tensor:
    """L2 distance (pairs,) of the vectors of whole papers; its gradient is 0, not NaN, for equal texts."""
    distances: Tensor = torch.linalg.vector_norm(query.whole - candidate.whole, dim=1)
    return distances


def transport_cost(query: PaperVectors, candidate: PaperVectors, settings: Settings) -> Tensor:
    """The regularized cost (pairs,) of optimal transport between the sentences of two papers.

    Masses are softmax(-L2 distance to the nearest sentence of the other paper / tau). The value is the
    minimum over plans P with these marginals of <P, C> + KL(P | rows x columns) / lambda (Cuturi, 2013), as
    geomloss computes it for ASPIRE with the blur 1 / lambda. Plan and masses are held constant: by the
    envelope theorem (Peyré and Cuturi, 2019, section 9.1) the gradient of the costs is the plan; that of
    masses is negligible.
    """
    costs, real = _pairwise(query, candidate)
    exact = costs.detach().double().masked_fill(~real, math.inf)
    rows, columns = (torch.softmax(-exact.amin(axis) / settings.temperature, 1) for axis in (2, 1))
    distances, left, right = (part.cpu().numpy() for part in (exact, rows, columns))
    plans = torch.from_numpy(entropic_transport(distances, left, right, settings.regularization))
    plans = plans.to(costs.device)
    apart = rows[:, :, None] * columns[:, None]
    divergence = torch.special.xlogy(plans, plans / apart.clamp(min=1e-300)).sum((1, 2))
    value: Tensor = (plans * costs.double()).sum((1, 2)) + divergence / settings.regularization
    return value.to(costs.dtype)


def smallest_distance(query: PaperVectors, candidate: PaperVectors, _: Settings) -> Tensor:
    """The smallest L2 distance (pairs,) of a sentence of one paper and a sentence of the other."""
    distances, real = _pairwise(query, candidate)
    return distances.masked_fill(~real, math.inf).flatten(1).amin(1)


def attention_distance(query: PaperVectors, candidate: PaperVectors, settings: Settings) -> Tensor:
    """The mean (pairs,) of L2 distances of all pairs of sentences, weighted by softmax(-distance / tau)."""
    distances, real = _pairwise(query, candidate)
    nearness = (-distances / settings.temperature).masked_fill(~real, -math.inf)
    return (torch.softmax(nearness.flatten(1), 1) * distances.flatten(1)).sum(1)


def _pairwise(query: PaperVectors, candidate: PaperVectors) -> tuple[Tensor, Tensor]:
    """L2 distances (pairs, sentences, sentences), and which of them are of no padding."""
    distances = torch.cdist(query.sentences, candidate.sentences, compute_mode="donot_use_mm_for_euclid_dist")
    return distances, query.present.unsqueeze(2) & candidate.present.unsqueeze(1)


# What an objective aligns two sentences by, the sentences that cite both papers or the papers' own, as files
# name it; and what it reads in place of papers: sentences that cite the same, or a sentence and its abstract.
CONTEXTS, ABSTRACTS = "cc_align", "abs_align"
CITING, CLOZE = "citing sentences", "cloze"


class Objective(NamedTuple):
    """An objective: its name in the paper, and the authors' learning rate and tau for computer science."""

    name: str
    rate: float
    distance: Callable[[PaperVectors, PaperVectors, Settings], Tensor] | None = None  # of two papers
    aligned: str = ""  # CONTEXTS or ABSTRACTS where the distance of two aligned sentences counts
    reads: str = ""  # papers
    temperature: float = 0.5


OBJECTIVES: Mapping[str, Objective] = {
    "bi-encoder": Objective("SPECTER-CoCite", 2e-5, whole_distance),
    "ts": Objective("TSASPIRE", 2e-5, aligned=CONTEXTS),
    "ot": Objective("OTASPIRE", 2e-5, transport_cost),
    "ts+ot": Objective("TS+OTASPIRE", 1e-5, transport_cost, aligned=CONTEXTS),
    "abs": Objective("absASPIRE", 2e-5, aligned=ABSTRACTS),
    "att": Objective("attASPIRE", 2e-5, attention_distance, temperature=1.0),
    "max": Objective("maxASPIRE", 2e-5, smallest_distance),
    "cosent": Objective("CoSentBert", 2e-5, whole_distance, reads=CITING),
    "ict": Objective("ICTSENTBERT", 2e-5, whole_distance, reads=CLOZE),
}


def triplet_losses(objective: Objective, triplets: Triplets, settings: Settings) -> Tensor:
    """The losses (triplets,) of an objective; with several distances (ts+ot) the sum of theirs."""
    papers, parts = triplets[:3], []
    if objective.aligned:
        rows = torch.arange(len(triplets.alignment), device=triplets.alignment.device)
        places = (*triplets.alignment.T, triplets.negative_alignment)
        query, *others = (each.sentences[rows, at] for each, at in zip(papers, places, strict=True))
        parts.append([torch.linalg.vector_norm(query - other, dim=1) for other in others])
    if objective.distance:
        parts.append([objective.distance(papers[0], other, settings) for other in papers[1:]])
    return torch.stack([F.relu(settings.margin + near - far) for near, far in parts]).sum(0)
