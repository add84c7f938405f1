"""Fusion of several scores of the same candidates, and the best of them: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.query import Aspect
from qbe.types import Hit

Floats = NDArray[np.float64]

# Papers of a query that count for a candidate: two, chosen on the bibliographies of `citations` train, and of
# more than five the nearer half, chosen on people's judgements (systematic reviews).
BEST_PAPERS = 2


def z_normalize(scores: Floats, count: int | None = None) -> Floats:
    """Normalize scores (n,) to mean 0 and deviation 1 of the first ``count``; all 0 where these are equal."""
    known = scores[:count]
    deviation = known.std() if len(known) else 0.0
    differ = deviation > 1e-9 * max(1.0, float(np.abs(known).max(initial=0.0)))
    return np.asarray((scores - known.mean()) / deviation) if differ else np.zeros_like(scores)


def weighted_sum(components: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """Return the weighted mean of z-normalized components (n,); those without weight do not count."""
    used = [name for name in components if weights.get(name, 0.0)]
    total = sum(weights[name] for name in used)
    length = len(next(iter(components.values())))
    fused = sum((weights[name] * z_normalize(components[name]) for name in used), np.zeros(length))
    return np.asarray(fused / total if total else fused, dtype=np.float64)


def combine_aspects(scores: Sequence[Floats], aspects: Sequence[Aspect], count: int | None = None) -> Floats:
    """Combine z-normalized scores (n,) by several aspects (CombSUM, Fox and Shaw, 1994; Rocchio, 1971)."""
    total = sum(abs(aspect.weight) for aspect in aspects)
    return sum_of_papers([z_normalize(each, count) for each in scores], aspects) / total


def sum_of_papers(scores: Sequence[Floats], aspects: Sequence[Aspect]) -> Floats:
    """Sum the aspects' weighted scores (n,); of n >= 3 liked papers the best two, or the best half of more
    than five, count as much as all.
    """
    by_paper: dict[str, Floats] = {}
    liked: set[str] = set()
    for score, aspect in zip(scores, aspects, strict=True):
        paper_id = aspect.paper.paper_id
        by_paper[paper_id] = by_paper.get(paper_id, np.zeros(len(score))) + aspect.weight * score
        if aspect.weight > 0:
            liked.add(paper_id)
    rest = sum((each for name, each in by_paper.items() if name not in liked), np.zeros(len(scores[0])))
    if not liked:  # where only disliked aspects are reranked
        return np.asarray(rest, dtype=np.float64)
    for_it = np.stack([each for name, each in by_paper.items() if name in liked])
    count = max(BEST_PAPERS, len(liked) // 2)
    best = for_it if len(liked) <= count else np.sort(for_it, axis=0)[-count:]
    return np.asarray(best.sum(axis=0) * (len(liked) / len(best)) + rest, dtype=np.float64)


def best_hits(paper_ids: Sequence[str], scores: NDArray[np.floating], k: int) -> list[Hit]:
    """Select the best ``k`` papers by score, ties by id."""
    chosen = np.arange(len(scores))
    if k < len(scores):  # only those that reach the last place are worth sorting, ties with it included
        chosen = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    hits = [Hit(paper_ids[place], float(scores[place])) for place in chosen.tolist()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))[:k]


def explained(hits: Sequence[Hit], paper_ids: Sequence[str], components: Mapping[str, Floats]) -> list[Hit]:
    """Add to hits their scores by component, each of which has those of all papers (n,)."""
    places = {paper_id: place for place, paper_id in enumerate(paper_ids)}
    made = []
    for hit in hits:
        scores = {name: float(each[places[hit.paper_id]]) for name, each in components.items()}
        made.append(hit._replace(component_scores=scores))
    return made


def below(lowest: float, rest: Sequence[Hit]) -> list[Hit]:
    """Shift the scores of hits, best first, so that the best of them is 1 below ``lowest``."""
    return [hit._replace(score=lowest - 1 - (rest[0].score - hit.score)) for hit in rest]
