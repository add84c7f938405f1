"""Queries of several facets: candidates graded in each facet of a paper, and ranked by their grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from qbe.grade.model import Estimates, on_scale
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.query import Aspect, Query
from qbe.rerank.graded import GradedQuery, Grader
from qbe.search.contracts import FirstStage, Rows, Scores
from qbe.search.fusion import BEST_PAPERS, best_hits
from qbe.search.ranking import RankingRequest, checked_pool, liked_candidates
from qbe.types import Facet, Hit, Paper

DEPTH = 300
"""How many candidates each first stage brings by each liked aspect."""

LIKELY_FROM = 0.6
"""The chance from which on a paper is called likely."""

_PLACES: Mapping[Facet, int] = {facet: place for place, facet in enumerate(Facet)}


class ExploreRequest(NamedTuple):
    """A query whose aspects are all facets, and its papers with the vectors of their sentences."""

    ranking: RankingRequest
    papers: Sequence[GradedQuery]


class ExploreStage:
    """Ranks by how likely a candidate is as asked: similar in the liked facets (a grade of at least 1.5), and
    another one in the disliked (of at most 1).

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

    def _graded(self, request: ExploreRequest, rows: Rows) -> list[Estimates]:
        """What is estimated of papers by each paper of a request."""
        grader, papers = self._open_grader(), [self._reader.papers[row] for row in rows.tolist()]
        return [grader.grade(query, papers)[0] for query in request.papers]

    def _rows(self, request: RankingRequest, k: int) -> Rows:
        papers, paper_ids = self._reader.papers, checked_pool(self._reader, request)
        if paper_ids is None:
            depth = min(max(k, DEPTH), len(self._reader))
            paper_ids = [each for stage in self._stages for each in liked_candidates(stage, request, depth)]
        return np.unique(rows_of(papers, paper_ids))


def _chances(request: ExploreRequest, graded: Sequence[Estimates]) -> list[Scores]:
    """How likely candidates (papers,) are as each aspect asks: similar, or another one where it is
    disliked.
    """
    columns = []
    for aspect in request.ranking.query.aspects:
        assert aspect.facet is not None
        estimates = _graded_by(request, graded, aspect)
        chances = estimates.similar if aspect.weight > 0 else estimates.other
        columns.append(chances[:, _PLACES[aspect.facet]])
    return columns


def _as_asked(chances: Sequence[Scores], aspects: Sequence[Aspect]) -> Scores:
    """How likely candidates are as asked by all aspects, (papers,), the chances of each being independent.

    The weight of an aspect is an exponent of its chances; 1 leaves them as they are. With several liked
    papers it is the mean of the two (BEST_PAPERS) that a candidate fits best; those that only disliked
    aspects name count as often as one liked paper, whatever their number.
    """
    papers: dict[str, Scores] = {}
    liked = {aspect.paper.paper_id for aspect in aspects if aspect.weight > 0}
    for column, aspect in zip(chances, aspects, strict=True):
        name = aspect.paper.paper_id
        weight = abs(aspect.weight) / (1 if name in liked else len(liked))
        papers[name] = papers.get(name, np.ones(len(column))) * column**weight
    best = np.sort([papers[name] for name in liked], axis=0)[-BEST_PAPERS:]
    others = [papers[name] for name in papers if name not in liked]
    scores: Scores = np.prod([best.mean(axis=0), *others], axis=0).round(6)
    return scores


def likely(query: Query, hits: Sequence[Hit]) -> int | None:
    """How many hits of `ExploreStage` are likely what a query asks for; None where weights other than 1 make
    their scores no chances.

    >>> from qbe.types import Sentence
    >>> paper = Paper("p1", "", (Sentence("We route.", Facet.METHOD), Sentence("It helps.", Facet.RESULT)))
    >>> query = Query.by_facets(paper, {Facet.METHOD: 1, Facet.RESULT: -1})
    >>> likely(query, [Hit("p2", 0.7), Hit("p3", 0.2)])
    1
    """
    if any(abs(aspect.weight) != 1 for aspect in query.aspects):
        return None
    return sum(hit.score >= LIKELY_FROM for hit in hits)


def _named_grades(request: ExploreRequest, graded: Sequence[Estimates]) -> list[dict[str, float]]:
    """The grades of each candidate by facet: of several papers the best, of those that only disliked aspects
    name none. A facet that no paper of the query has sentences of is left out.
    """
    query = request.ranking.query
    ids = {aspect.paper.paper_id for aspect in query.aspects if aspect.weight > 0}
    papers = zip((each.paper for each in request.papers), graded, strict=True)
    liked = [(paper, each) for paper, each in papers if paper.paper_id in ids]
    best = {
        facet.value: np.max([each.grades[:, place] for paper, each in liked if _has(paper, facet)], axis=0)
        for facet, place in _PLACES.items()
        if any(_has(paper, facet) for paper, _ in liked)
    }
    count = len(graded[0].grades)
    shown = {name: on_scale(column).round(4) for name, column in best.items()}
    return [{name: float(column[row]) for name, column in shown.items()} for row in range(count)]


def _hits(
    reader: IndexReader, request: ExploreRequest, rows: Rows, graded: Sequence[Estimates], *, explain: bool
) -> list[Hit]:
    """All candidates as hits, best first."""
    if not len(rows):
        return []
    ids = [reader.papers.ids[row] for row in rows.tolist()]
    chances, grades = _chances(request, graded), _named_grades(request, graded)
    scores = _as_asked(chances, request.ranking.query.aspects)
    place = {paper_id: number for number, paper_id in enumerate(ids)}
    hits = []
    for hit in best_hits(ids, scores.astype(np.float32), len(ids)):
        number = place[hit.paper_id]
        hit = hit._replace(grades=grades[number])
        if explain:
            named = {request.ranking.label(i): float(column[number]) for i, column in enumerate(chances)}
            hit = hit._replace(component_scores=named)
        hits.append(hit)
    return hits


def _has(paper: Paper, facet: Facet) -> bool:
    return bool(paper.facet_positions(facet)[0])


def _graded_by(request: ExploreRequest, graded: Sequence[Estimates], aspect: Aspect) -> Estimates:
    """What is estimated of the candidates by the paper of an aspect."""
    papers = [each.paper.paper_id for each in request.papers]
    return graded[papers.index(aspect.paper.paper_id)]
