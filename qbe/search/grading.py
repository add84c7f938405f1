"""Queries of several facets: candidates graded in each facet of a paper, and ranked by their grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.grade.model import on_scale
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.query import Aspect
from qbe.rerank.graded import GradedQuery, Grader
from qbe.search.contracts import FirstStage, Rows, Scores
from qbe.search.fusion import best_hits, sum_of_papers
from qbe.search.ranking import ASPECT_DEPTH, RankingRequest, checked_pool, liked_candidates
from qbe.types import Facet, Hit, Paper

Grades = NDArray[np.float64]
"""Grades (papers, 3) by background, method and result."""

_PLACES: Mapping[Facet, int] = {facet: place for place, facet in enumerate(Facet)}


class ExploreRequest(NamedTuple):
    """A query whose aspects are all facets, and its papers with the vectors of their sentences."""

    ranking: RankingRequest
    papers: Sequence[GradedQuery]


class ExploreStage:
    """Ranks by the weighted sum of grades: of liked facets less those of disliked ones.

    Candidates come from the first stages, by every liked aspect.
    """

    def __init__(
        self, reader: IndexReader, stages: Sequence[FirstStage], open_grader: Callable[[], Grader]
    ) -> None:
        """``open_grader`` is called when something is graded."""
        self._reader, self._stages, self._open_grader = reader, stages, open_grader

    def rank(self, requests: Sequence[ExploreRequest], k: int, *, explain: bool) -> list[list[Hit]]:
        """For each request its candidates, at least ``k`` of them where there are so many, with their grades,
        best first, ties by id.
        """
        ranked = []
        for request in requests:
            rows = self._rows(request.ranking, k)
            ranked.append(_hits(self._reader, request, rows, self._graded(request, rows), explain=explain))
        return ranked

    def grade(self, request: ExploreRequest, hits: Sequence[Hit]) -> list[Hit]:
        """Hits of any query, in their order, with grades."""
        rows = np.unique(rows_of(self._reader.papers, (hit.paper_id for hit in hits)))
        by_row = dict(zip(rows.tolist(), _named_grades(request, self._graded(request, rows)), strict=True))
        return [hit._replace(grades=by_row[self._reader.papers.row(hit.paper_id)]) for hit in hits]

    def _graded(self, request: ExploreRequest, rows: Rows) -> list[Grades]:
        """The grades of papers by each paper of a request."""
        grader, papers = self._open_grader(), [self._reader.papers[row] for row in rows.tolist()]
        return [grader.grade(query, papers)[0] for query in request.papers]

    def _rows(self, request: RankingRequest, k: int) -> Rows:
        papers, paper_ids = self._reader.papers, checked_pool(self._reader, request)
        if paper_ids is None:
            depth = min(max(k, ASPECT_DEPTH), len(self._reader))
            paper_ids = [each for stage in self._stages for each in liked_candidates(stage, request, depth)]
        return np.unique(rows_of(papers, paper_ids))


def _counted(request: ExploreRequest, graded: Sequence[Grades]) -> list[Scores]:
    """What counts of the candidates by each aspect (papers,): the estimated grade, of a disliked one as it is
    on the scale, since what is unrelated cannot be more so.
    """
    columns = []
    for aspect in request.ranking.query.aspects:
        assert aspect.facet is not None
        column = _graded_by(request, graded, aspect)[:, _PLACES[aspect.facet]]
        columns.append(column if aspect.weight > 0 else on_scale(column))
    return columns


def _named_grades(request: ExploreRequest, graded: Sequence[Grades]) -> list[dict[str, float]]:
    """The grades of each candidate by facet: of several papers the best, of those that only disliked aspects
    name none. A facet that no paper of the query has sentences of is left out.
    """
    query = request.ranking.query
    ids = {aspect.paper.paper_id for aspect in query.aspects if aspect.weight > 0}
    papers = zip((each.paper for each in request.papers), graded, strict=True)
    liked = [(paper, grades) for paper, grades in papers if paper.paper_id in ids]
    best = {
        facet.value: np.max([grades[:, place] for paper, grades in liked if _has(paper, facet)], axis=0)
        for facet, place in _PLACES.items()
        if any(_has(paper, facet) for paper, _ in liked)
    }
    count = len(graded[0])
    shown = {name: on_scale(column).round(4) for name, column in best.items()}
    return [{name: float(column[row]) for name, column in shown.items()} for row in range(count)]


def _hits(
    reader: IndexReader, request: ExploreRequest, rows: Rows, graded: Sequence[Grades], *, explain: bool
) -> list[Hit]:
    """All candidates as hits, best first."""
    if not len(rows):
        return []
    ids = [reader.papers.ids[row] for row in rows.tolist()]
    counted, grades = _counted(request, graded), _named_grades(request, graded)
    aspects = request.ranking.query.aspects
    liked = sum(aspect.weight for aspect in aspects if aspect.weight > 0)
    # Over the weights of what is liked: about 3 at the most.
    scores = sum_of_papers(counted, aspects) / liked
    place = {paper_id: number for number, paper_id in enumerate(ids)}
    hits = []
    for hit in best_hits(ids, scores.astype(np.float32), len(ids)):
        number = place[hit.paper_id]
        hit = hit._replace(grades=grades[number])
        if explain:
            named = {request.ranking.label(i): float(column[number]) for i, column in enumerate(counted)}
            hit = hit._replace(component_scores=named)
        hits.append(hit)
    return hits


def _has(paper: Paper, facet: Facet) -> bool:
    return bool(paper.facet_positions(facet)[0])


def _graded_by(request: ExploreRequest, graded: Sequence[Grades], aspect: Aspect) -> Grades:
    """The grades of the candidates by the paper of an aspect."""
    papers = [each.paper.paper_id for each in request.papers]
    return graded[papers.index(aspect.paper.paper_id)]
