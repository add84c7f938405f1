"""Queries of several facets: candidates are graded in each facet and ranked by grades, mixed or varied."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import floor

import numpy as np

from qbe.index.index import Index
from qbe.index.papers import rows_of
from qbe.index.reader import IndexReader
from qbe.index.vectors import Rows, distinct
from qbe.models.cards import Estimates, shipped_model
from qbe.query import SHAPES, Aspect, Query, Variety
from qbe.search import grading
from qbe.search.first_stages import BM25Stage, FirstStage, FusedStage, Scores, best_hits, explained
from qbe.search.grading import Regrader
from qbe.search.rank import BEST_PAPERS, Progress, RankingRequest, below, liked_candidates
from qbe.search.stages import TELLING_WORDS
from qbe.types import Facet, Hit, Paper
from qbe.util.work import Workers, pause

DEPTH = 300  # candidates that each first stage brings by each liked aspect
GRADING = 20  # papers that a cross-encoder reads in the time in which candidates are graded by vectors
LIKELY_FROM = 0.6  # papers with at least this chance are called likely
VARIED_DEPTH = 100  # papers, of a mix by each shape, that are compared with each other to differ

_Known = dict[bytes, tuple[list[Paper], Sequence[Paper] | grading.Candidates]]  # candidates by their rows


@dataclass
class ExploreStage:
    """Ranks by how likely a candidate is as asked: similar in the liked facets (a grade of at least 1.5), and
    different in the disliked ones (at most 1). Candidates come from the first stages, by every liked
    aspect. Where asked, the best are graded again by the ``regrader``.
    """

    index: Index
    reader: IndexReader
    stages: Sequence[FirstStage]
    regrader: Regrader | None
    _last: _Known = field(default_factory=dict, repr=False)  # watches grade the same new papers by turns

    @cached_property
    def _grader(self) -> grading.Grader:
        return grading.open_grader(self.index, self.reader)

    def rank(
        self,
        requests: Sequence[RankingRequest],
        k: int,
        *,
        explain: bool,
        again: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Hit]]:
        """Rank all candidates of each request, at least ``k`` where there are, with grades, ties by id."""
        known: _Known = {}
        ranked: list[list[Hit]] = []
        for request in requests:
            paper_ids = request.candidates(self.reader)
            if paper_ids is None:
                depth = min(max(k, DEPTH), len(self.reader))
                by_stage = (liked_candidates(stage, request, depth) for stage in self.stages)
                paper_ids = [paper_id for found in by_stage for paper_id in found]
            rows = distinct(rows_of(self.reader.papers, paper_ids))
            if not len(rows):
                ranked.append([])
                continue
            graded = self._graded(request, rows, known, again=again, progress=progress)
            ids = [self.reader.papers.ids[row] for row in rows.tolist()]
            make = self._mixed if request.variety.mix else self._by_chance
            ranked.append(make(request, ids, graded, explain))
        return ranked

    def _graded(
        self,
        request: RankingRequest,
        rows: Rows,
        known: _Known,
        fit: Scores | None = None,
        *,
        again: bool,
        progress: Progress | None = None,
    ) -> list[Estimates]:
        """Estimate papers by each paper of a request; ``known`` are those of the one before."""
        key = rows.astype(np.int64).tobytes()
        if (prepared := known.get(key)) is None:
            found = [self.reader.papers[row] for row in rows.tolist()]
            prepared = found, self._grader.features.candidates(found) if found else found
            known.clear()  # other threads may do so at any time
            known[key] = prepared
        papers, candidates = prepared
        graded, regrader = [], self.regrader
        for query in request.graded_by:
            pause()
            graded.append(self._grader.grade(query, candidates)[0])
            if progress and not again:
                progress(GRADING)
        if regrader is None or not again:
            return graded
        fit = _fit(request, graded) if fit is None else fit
        pairs = zip(request.graded_by, graded, strict=True)
        return [regrader.regraded(each.paper, papers, found, fit, progress) for each, found in pairs]

    def _by_chance(
        self, request: RankingRequest, ids: Sequence[str], graded: Sequence[Estimates], explain: bool
    ) -> list[Hit]:
        aspects, named = request.query.aspects, dict(zip(ids, _named_grades(request, graded), strict=True))
        chances = _chances(request, graded, aspects)
        hits = [
            hit._replace(grades=named[hit.paper_id], chance=hit.score)
            for hit in best_hits(ids, _as_asked(chances, aspects).astype(np.float32), len(ids))
            if request.variety.admits(named[hit.paper_id])
        ]
        if explain:
            by_label = {request.label(number): column for number, column in enumerate(chances)}
            hits = explained(hits, ids, by_label)
        return self.diversified(hits, request.variety.diversity or 0.0)

    def _mixed(
        self, request: RankingRequest, ids: Sequence[str], graded: Sequence[Estimates], explain: bool
    ) -> list[Hit]:
        """Candidates of a mixed list, each with the shape that it is there for; the score is 1 / place."""
        variety, grades = request.variety, _named_grades(request, graded)
        by_id = sorted(range(len(ids)), key=ids.__getitem__)
        kept = np.array([each for each in by_id if variety.admits(grades[each])], np.int64)
        chances = np.array([_shape_chances(request, graded, name) for name in variety.mix])[:, kept]
        shapes, shares, diversity = list(variety.mix), list(variety.mix.values()), variety.diversity or 0.0
        compared = np.arange(len(kept))
        similarity = None
        if diversity:
            compared = distinct(np.argsort(-chances, axis=1, kind="stable")[:, :VARIED_DEPTH].ravel())
            papers = [self.reader.paper(ids[kept[each]]) for each in compared.tolist()]
            similarity = self._grader.features.similarities(papers)
        relevance = np.array([scaled(each) for each in chances[:, compared]])
        rest = np.setdiff1d(np.arange(len(kept)), compared)
        first, others = varied(relevance, shares, similarity, diversity), varied(chances[:, rest], shares)
        chosen = [(int(compared[place]), shape) for place, shape, _ in first]
        chosen += [(int(rest[place]), shape) for place, shape, _ in others]
        hits = []
        for number, (candidate, shape) in enumerate(chosen, start=1):
            named, name = dict(zip(shapes, chances[:, candidate].tolist(), strict=True)), shapes[shape]
            hit = Hit(ids[kept[candidate]], 1 / number, grades=grades[kept[candidate]], corner=name)
            hits.append(hit._replace(chance=named[name], component_scores=named if explain else None))
        return hits

    def diversified(self, hits: Sequence[Hit], diversity: float) -> list[Hit]:
        """Order the first VARIED_DEPTH hits by maximal marginal relevance, which becomes their score."""
        if not diversity or not hits:
            return list(hits)
        first = sorted(hits[:VARIED_DEPTH], key=lambda hit: hit.paper_id)
        relevance = scaled(np.array([hit.score for hit in first]))[None]
        similarity = self._grader.features.similarities([self.reader.paper(hit.paper_id) for hit in first])
        places = varied(relevance, similarity=similarity, diversity=diversity)
        moved = [first[place]._replace(score=value) for place, _, value in places]
        return [*moved, *below(moved[-1].score, hits[VARIED_DEPTH:])]

    def grade(self, request: RankingRequest, hits: Sequence[Hit], *, again: bool) -> list[Hit]:
        """Add grades to hits of a query, whatever found them, in their order."""
        in_order = rows_of(self.reader.papers, (hit.paper_id for hit in hits))
        rows, places, of_hits = np.unique(in_order, return_index=True, return_inverse=True)
        fit = -places.astype(np.float64)  # the first hits fit best
        named = _named_grades(request, self._graded(request, rows, self._last, fit, again=again))
        return [hit._replace(grades=named[place]) for hit, place in zip(hits, of_hits.tolist(), strict=True)]


def _shape_chances(request: RankingRequest, graded: Sequence[Estimates], name: str) -> Scores:
    """The chances of candidates (papers,) by a shape; of disliked papers what the shape likes counts."""
    aspects, weights = list[Aspect](), SHAPES[name]
    for aspect in request.query.aspects:
        weight = weights.get(aspect.facet or Facet.RESULT, 0.0)
        if aspect.paper.paper_id in request.query.liked and weight:
            aspects.append(replace(aspect, weight=weight * abs(aspect.weight)))
        elif weight > 0:
            aspects.append(aspect)
    return _as_asked(_chances(request, graded, aspects), aspects)


def _fit(request: RankingRequest, graded: Sequence[Estimates]) -> Scores:
    """How well candidates (papers,) fit the query; of a mix the reciprocal of the best place by any shape."""
    mix, aspects = request.variety.mix, request.query.aspects
    if not mix:
        return _as_asked(_chances(request, graded, aspects), aspects)
    by_shape = np.array([_shape_chances(request, graded, name) for name in mix])
    order = np.argsort(-by_shape, axis=1, kind="stable")
    return np.asarray(1 / (1 + np.argsort(order, axis=1).min(axis=0, initial=by_shape.shape[1])))


def _chances(request: RankingRequest, graded: Sequence[Estimates], aspects: Sequence[Aspect]) -> list[Scores]:
    """The chances of candidates (papers,) by aspect: to be similar, or different where it is disliked."""
    columns, papers = [], [each.paper.paper_id for each in request.graded_by]
    for aspect in aspects:
        assert aspect.facet is not None
        estimates = graded[papers.index(aspect.paper.paper_id)]
        chances = estimates.similar if aspect.weight > 0 else estimates.other
        columns.append(chances[:, list(Facet).index(aspect.facet)])
    return columns


def _as_asked(chances: Sequence[Scores], aspects: Sequence[Aspect]) -> Scores:
    """The chances of candidates (papers,) by all aspects, taken as independent; weights are exponents."""
    papers: dict[str, Scores] = {}
    liked = {aspect.paper.paper_id for aspect in aspects if aspect.weight > 0}
    for column, aspect in zip(chances, aspects, strict=True):
        name = aspect.paper.paper_id
        # Papers that are only disliked count together as much as one liked paper.
        weight = abs(aspect.weight) / (1 if name in liked else len(liked))
        papers[name] = papers.get(name, np.ones(len(column))) * column**weight
    best = np.sort([papers[name] for name in liked], axis=0)[-BEST_PAPERS:]
    others = [papers[name] for name in papers if name not in liked]
    return np.asarray(np.prod([best.mean(axis=0), *others], axis=0).round(6))


def likely(query: Query, variety: Variety, hits: Sequence[Hit], k: int) -> str | None:
    """Say how many hits are likely as asked, or how likely the best is; None where scores are no chances."""
    if not variety.mix and any(abs(aspect.weight) != 1 for aspect in query.aspects):
        return None
    corners = [hit.corner for hit in hits if (hit.chance or 0.0) >= LIKELY_FROM]
    shown = [hit.corner for hit in hits[:k]]
    if not corners:
        liked = [aspect.facet for aspect in query.aspects if aspect.weight > 0]
        if not hits:
            return grading.NONE_LIKELY
        told = next(filter(None, (grading.nothing_fits(hits, facet) for facet in liked)), None)
        best = floor(100 * max(hit.chance or 0.0 for hit in hits)) / 100
        none = f"no paper has a chance of {LIKELY_FROM} of being what you ask for: the best has {best:.2f}"
        return told or none
    counted = "; ".join(
        f"{corners.count(name) or 'none'} of {name}"
        + (", filled up with the nearest" if corners.count(name) < shown.count(name) else "")
        for name in variety.mix
    )
    return f"papers that are likely to be what you ask for: {counted or len(corners)}"


def _named_grades(request: RankingRequest, graded: Sequence[Estimates]) -> list[dict[str, float]]:
    """The grades of each candidate by facet, the best over the liked papers that have sentences of it."""
    pairs = [(each.paper, found) for each, found in zip(request.graded_by, graded, strict=True)]
    liked = [grading.named_grades(*pair) for pair in pairs if pair[0].paper_id in request.query.liked]
    best = []
    for by_paper in zip(*liked, strict=True):
        named = {name: [grades[name] for grades in by_paper if name in grades] for name in map(str, Facet)}
        best.append({name: max(grades) for name, grades in named.items() if grades})
    return best


def varied(
    relevance: Scores,
    shares: Sequence[float] = (1.0,),
    similarity: Scores | None = None,
    diversity: float = 0.0,
) -> list[tuple[int, int, float]]:
    """Put all candidates into a list in which shapes have their shares and neighbours differ.

    Each place goes to the shape with the highest ``share / (2 * places + 1)``, the first of equals
    (Sainte-Lague, as in PM-1 of Dang and Croft, 2012), which takes the candidate with the highest ``(1 -
    diversity) * relevance - diversity * closest``, where ``closest`` is the largest ``similarity``
    (candidates, candidates) to one that has a place (Carbonell and Goldstein, 1998); of equals the most
    relevant, then the first. ``relevance`` (shapes, candidates) is from 0 to 1. Returns candidate, shape and
    value of each place.
    """
    count = relevance.shape[1]
    weights, taken = np.array(shares, np.float64), np.zeros(len(shares))
    left, closest = np.ones(count, np.bool_), np.zeros(count)
    places = []
    for _ in range(count):
        shape = int((weights / (2 * taken + 1)).argmax())
        values = ((1 - diversity) * relevance[shape] - diversity * closest).round(6)
        best = left & (values == values[left].max())
        candidate = int(np.where(best, relevance[shape], -np.inf).argmax())
        places.append((candidate, shape, float(values[candidate])))
        taken[shape] += 1
        left[candidate] = False
        if similarity is not None:
            closest = np.maximum(closest, similarity[candidate])
    return places


def scaled(scores: Scores) -> Scores:
    """Scale scores (n,) to 0 for the lowest and 1 for the highest; all 1 where they are equal."""
    lowest, highest = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    return np.asarray((scores - lowest) / (highest - lowest)) if lowest < highest else np.ones(len(scores))


def open_explore_stage(
    index: Index, reader: IndexReader, first_stage: FirstStage, workers: Workers, regrader: Regrader | None
) -> ExploreStage | None:
    """Open what ranks queries of several facets; None where no grade model reads the index's vectors."""
    dense = reader.manifest.dense
    if dense is None or shipped_model(dense["encoder"]) is None:
        return None
    stages = [first_stage]
    if isinstance(first_stage, BM25Stage | FusedStage):  # dense search needs no Java
        stages.append(BM25Stage(reader, workers, TELLING_WORDS))
    return ExploreStage(index, reader, stages, regrader)
