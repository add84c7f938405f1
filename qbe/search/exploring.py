"""Queries of several facets: candidates graded in each, and ranked by their grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from qbe.grade.model import on_scale
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.query import Aspect
from qbe.rerank.reranker import Progress
from qbe.search.contracts import FirstStage, Rows, Scores
from qbe.search.fusion import below, best_hits, sum_of_papers
from qbe.search.grading import ByFacet, Graded, Grader, GradeRequest
from qbe.search.ranking import ASPECT_DEPTH, RankingRequest, checked_pool, liked_candidates
from qbe.types import Facet, Hit, Match

_PLACES: Mapping[Facet, int] = {facet: place for place, facet in enumerate(Facet)}


class ExploreRequest(NamedTuple):
    """A query whose aspects are all facets, and each of its papers by all facets that it has sentences of."""

    ranking: RankingRequest
    facets: Sequence[ByFacet]


class ExploreStage:
    """Ranks by the weighted sum of grades: of liked facets less those of disliked ones.

    Candidates come from the first stage, by every liked aspect. All are graded by stored vectors; the best
    ``depth`` of them are graded again with the reranker, where there is one, and the others follow below.
    """

    def __init__(self, reader: IndexReader, stage: FirstStage, grader: Grader, depth: int) -> None:
        self._reader, self._stage, self._grader, self._depth = reader, stage, grader, depth

    def first(self, requests: Sequence[ExploreRequest], k: int, *, explain: bool) -> list[list[Hit]]:
        """For each request its candidates, at least ``k`` of them where there are so many, with their grades
        by stored vectors, best first, ties by id.
        """
        ranked = []
        for request in requests:
            rows = self._rows(request.ranking, k)
            graded = [
                Graded(self._grader.by_vectors(GradeRequest(facets, rows)), {}) for facets in request.facets
            ]
            ranked.append(_hits(self._reader, request, rows, graded, explain=explain))
        return ranked

    def rerank(
        self,
        requests: Sequence[ExploreRequest],
        ranked: Sequence[Sequence[Hit]],
        *,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        """The candidates of `first`, the best of them graded again with the reranker, the others below."""
        best = [self._best_rows(hits) for hits in ranked]
        again = iter(
            self._grader.batch_grade(
                [
                    GradeRequest(facets, top)
                    for request, top in zip(requests, best, strict=True)
                    for facets in request.facets
                ],
                progress,
            )
        )
        final = []
        for request, hits, top in zip(requests, ranked, best, strict=True):
            by_paper = [next(again) for _ in request.facets]
            first = _hits(self._reader, request, top, by_paper, explain=explain)
            lowest = min((hit.score for hit in first), default=0.0)
            final.append([*first, *below(lowest, hits[self._depth :])])
        return final

    def grade(self, request: ExploreRequest, hits: Sequence[Hit], *, rerank: bool) -> list[Hit]:
        """Hits of any query, in their order, with grades; without ``rerank`` by stored vectors alone."""
        rows = np.unique(rows_of(self._reader.papers, (hit.paper_id for hit in hits)))
        requests = [GradeRequest(facets, rows) for facets in request.facets]
        if rerank:
            graded = self._grader.batch_grade(requests)
        else:
            graded = [Graded(self._grader.by_vectors(each), {}) for each in requests]
        by_row = dict(zip(rows.tolist(), _named_grades(request, graded), strict=True))
        return [hit._replace(grades=by_row[self._reader.papers.row(hit.paper_id)]) for hit in hits]

    def pair_count(self, papers: int, candidates: int) -> int:
        """How many pairs are reranked for a query of so many papers, out of so many candidates, at most."""
        return min(self._depth, candidates) * papers * len(Facet) if self.reranks else 0

    @property
    def reranks(self) -> bool:
        """Whether a reranker takes part in grading."""
        return self._grader.reranks

    def _rows(self, request: RankingRequest, k: int) -> Rows:
        papers, paper_ids = self._reader.papers, checked_pool(self._reader, request)
        if paper_ids is None:
            depth = min(max(k, ASPECT_DEPTH), len(self._reader))
            paper_ids = liked_candidates(self._stage, request, depth)
        return np.unique(rows_of(papers, paper_ids))

    def _best_rows(self, hits: Sequence[Hit]) -> Rows:
        rows = [self._reader.papers.row(hit.paper_id) for hit in hits[: self._depth]]
        return np.unique(np.array(rows, dtype=np.int64))


def _counted(request: ExploreRequest, graded: Sequence[Graded]) -> list[Scores]:
    """What counts of the candidates by each aspect (papers,): the estimated grade, of a disliked one as it is
    on the scale, since what is unrelated cannot be more so.
    """
    columns = []
    for aspect in request.ranking.query.aspects:
        assert aspect.facet is not None
        column = _graded_by(request, graded, aspect).grades[:, _PLACES[aspect.facet]]
        columns.append(column if aspect.weight > 0 else on_scale(column))
    return columns


def _named_grades(request: ExploreRequest, graded: Sequence[Graded]) -> list[dict[str, float]]:
    """The grades of each candidate by facet: of several papers the best, of those that only disliked aspects
    name none. A facet that no paper of the query has sentences of is left out.
    """
    query = request.ranking.query
    ids = {aspect.paper.paper_id for aspect in query.aspects if aspect.weight > 0}
    papers = zip(query.papers, request.facets, graded, strict=True)
    liked = [(facets, each.grades) for paper, facets, each in papers if paper.paper_id in ids]
    best = {
        facet.value: np.max([grades[:, place] for facets, grades in liked if facet in facets], axis=0)
        for facet, place in _PLACES.items()
        if any(facet in facets for facets, _ in liked)
    }
    count = len(graded[0].grades)
    shown = {name: on_scale(column).round(4) for name, column in best.items()}
    return [{name: float(column[row]) for name, column in shown.items()} for row in range(count)]


def _hits(
    reader: IndexReader, request: ExploreRequest, rows: Rows, graded: Sequence[Graded], *, explain: bool
) -> list[Hit]:
    """All candidates as hits, best first."""
    if not len(rows):
        return []
    ids = [reader.papers.ids[row] for row in rows.tolist()]
    counted, grades = _counted(request, graded), _named_grades(request, graded)
    closest = _closest(request, graded)
    aspects = request.ranking.query.aspects
    liked = sum(aspect.weight for aspect in aspects if aspect.weight > 0)
    # Over the weights of what is liked: about 3 at the most.
    scores = sum_of_papers(counted, aspects) / liked
    place = {paper_id: number for number, paper_id in enumerate(ids)}
    hits = []
    for hit in best_hits(ids, scores.astype(np.float32), len(ids)):
        number = place[hit.paper_id]
        hit = hit._replace(grades=grades[number], driven_by=closest[number] if closest else None)
        if explain:
            named = {request.ranking.label(i): float(column[number]) for i, column in enumerate(counted)}
            hit = hit._replace(component_scores=named)
        hits.append(hit)
    return hits


def _closest(request: ExploreRequest, graded: Sequence[Graded]) -> list[Match | None]:
    """For each candidate the pair of sentences that contributed most to the reranker's score by the aspect of
    most weight; empty without one.
    """
    aspects = request.ranking.query.aspects
    leading = max(range(len(aspects)), key=lambda place: aspects[place].weight)
    facet = aspects[leading].facet
    assert facet is not None
    scores = _graded_by(request, graded, aspects[leading]).reranked.get(facet, ())
    return [each.match and each.match._replace(aspect=leading) for each in scores]


def _graded_by(request: ExploreRequest, graded: Sequence[Graded], aspect: Aspect) -> Graded:
    """What is known of the candidates by the paper of an aspect."""
    papers = [paper.paper_id for paper in request.ranking.query.papers]
    return graded[papers.index(aspect.paper.paper_id)]
