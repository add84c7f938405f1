"""Queries of several facets: candidates graded in each facet of a paper, and ranked by their grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.grade.model import (
    RERANKED,
    VECTORS,
    WHOLE,
    GradeModel,
    of_best,
    of_facets,
    of_reranker,
    of_sentences,
    on_scale,
)
from qbe.index.dense.scoring import best_per_paper, mean_max, restrict, single_match
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.parallel import Workers
from qbe.query import Aspect
from qbe.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore
from qbe.search.contracts import FirstStage, Rows, Scores
from qbe.search.fusion import below, best_hits, sum_of_papers
from qbe.search.matches import compare_aspects
from qbe.search.ranking import ASPECT_DEPTH, RankingRequest, checked_pool, liked_candidates
from qbe.types import Facet, Hit, Match

Grades = NDArray[np.float64]
"""Grades (papers, 3) by background, method and result."""

ByFacet = Mapping[Facet, EncodedAspect]
"""The facets that a paper has sentences of, encoded."""


class GradeRequest(NamedTuple):
    """A query's paper by its facets, and the rows of its candidates, ascending."""

    facets: ByFacet
    rows: Rows


class Measured(NamedTuple):
    """Features of candidates by name, each (papers,), and what the rerankers say of each, by facet."""

    features: Mapping[str, Scores]
    reranked: Mapping[Facet, Sequence[RerankScore]]


class Graded(NamedTuple):
    """Grades of the candidates, and what the rerankers say of each, by facet; without them nothing."""

    grades: Grades
    reranked: Mapping[Facet, Sequence[RerankScore]]


class GradeFeatures:
    """Measures candidates by stored vectors and, where there is one, a facet reranker.

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> facets = {Facet.METHOD: EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))}
    >>> with index.reading() as reader:
    ...     rows = np.array([reader.papers.row("s036"), reader.papers.row("s051")])
    ...     features = GradeFeatures(reader, Workers()).by_vectors(GradeRequest(facets, rows))
    >>> features["method.sentences"].round(1).tolist()
    [1.0, 0.5]
    """

    def __init__(
        self, reader: IndexReader, workers: Workers, reranker: Callable[[], Reranker] | None = None
    ) -> None:
        """``reranker`` gives the facet rerankers, if they take part; raises IndexFormatError where the index
        has no vectors.
        """
        reader.require_vectors()
        self._papers, self._workers, self._reranker = reader.papers, workers, reranker
        self._comparer, self._facet_mask = reader.vector_store, reader.facet_mask

    @property
    def reranks(self) -> bool:
        """Whether a reranker takes part in `batch`."""
        return self._reranker is not None

    def by_vectors(self, request: GradeRequest) -> dict[str, Scores]:
        """The features that stored vectors give."""
        if not len(request.rows) or not request.facets:
            return {}
        (first, *_) = aspects = list(request.facets.values())
        block, by_aspect = compare_aspects(self._comparer, aspects, request.rows, first.whole_vector)
        assert block.whole is not None
        features: dict[str, Scores] = {WHOLE: block.whole.astype(np.float64)}
        for facet, similarities in zip(request.facets, by_aspect, strict=True):
            best = best_per_paper(similarities, block.starts)
            features[of_sentences(facet)] = mean_max(best).astype(np.float64)
            for other in Facet:
                counted = restrict(similarities, block.starts, self._facet_mask(other)[block.rows])
                best = best_per_paper(counted, block.starts)
                features[of_facets(facet, other)] = mean_max(best).astype(np.float64)
                features[of_best(facet, other)] = single_match(best).astype(np.float64)
        return features

    def batch(self, requests: Sequence[GradeRequest], progress: Progress | None = None) -> list[Measured]:
        """All features of the candidates of each request."""
        by_vectors = list(self._workers.map(self.by_vectors, requests))
        if self._reranker is None:
            return [Measured(features, {}) for features in by_vectors]
        rows = dict.fromkeys(row for request in requests for row in request.rows.tolist())
        papers = {row: self._papers[row] for row in rows}
        pairs = [
            RerankRequest(aspect, [papers[row] for row in request.rows.tolist()])
            for request in requests
            for aspect in request.facets.values()
        ]
        scored = iter(self._reranker().batch_score(pairs, progress))
        measured = []
        for request, features in zip(requests, by_vectors, strict=True):
            reranked = {facet: next(scored) for facet in request.facets}
            by_reranker = {
                of_reranker(facet): np.array([each.score for each in scores], np.float64)
                for facet, scores in reranked.items()
            }
            measured.append(Measured({**features, **by_reranker}, reranked))
        return measured


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

    def __init__(
        self, reader: IndexReader, stage: FirstStage, features: GradeFeatures, model: GradeModel, depth: int
    ) -> None:
        self._reader, self._stage, self._depth = reader, stage, depth
        self._features, self._model = features, model

    def first(self, requests: Sequence[ExploreRequest], k: int, *, explain: bool) -> list[list[Hit]]:
        """For each request its candidates, at least ``k`` of them where there are so many, with their grades
        by stored vectors, best first, ties by id.
        """
        ranked = []
        for request in requests:
            rows = self._rows(request.ranking, k)
            graded = self._graded([GradeRequest(facets, rows) for facets in request.facets], rerank=False)
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
        by_facets = [
            GradeRequest(facets, top)
            for request, top in zip(requests, best, strict=True)
            for facets in request.facets
        ]
        again = iter(self._graded(by_facets, progress, rerank=True))
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
        graded = self._graded([GradeRequest(facets, rows) for facets in request.facets], rerank=rerank)
        by_row = dict(zip(rows.tolist(), _named_grades(request, graded), strict=True))
        return [hit._replace(grades=by_row[self._reader.papers.row(hit.paper_id)]) for hit in hits]

    def pair_count(self, papers: int, candidates: int) -> int:
        """How many pairs are reranked for a query of so many papers, out of so many candidates, at most."""
        return min(self._depth, candidates) * papers * len(Facet) if self.reranks else 0

    @property
    def reranks(self) -> bool:
        """Whether a reranker takes part in grading."""
        return self._features.reranks

    def _graded(
        self, requests: Sequence[GradeRequest], progress: Progress | None = None, *, rerank: bool
    ) -> list[Graded]:
        """Grades of the candidates of each request; without ``rerank`` by stored vectors alone."""
        if rerank:
            known, measured = RERANKED if self.reranks else VECTORS, self._features.batch(requests, progress)
        else:
            known = VECTORS
            measured = [Measured(self._features.by_vectors(request), {}) for request in requests]
        return [
            Graded(self._model.grades(features, known, len(request.rows)), reranked)
            for request, (features, reranked) in zip(requests, measured, strict=True)
        ]

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
