"""Grades of candidates: what stored vectors, and rerankers, say of them in each facet of a paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.grade.features import (
    RERANKED,
    VECTORS,
    WHOLE,
    of_best,
    of_facets,
    of_reranker,
    of_sentences,
)
from qbe.grade.model import GradeModel
from qbe.index.dense.scoring import best_per_paper, mean_max, restrict, single_match
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore
from qbe.search.comparing import compare_aspects
from qbe.search.contracts import Rows, Scores
from qbe.types import Facet

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
        self._comparer, self._facet_mask = reader.comparer, reader.facet_mask

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


class Grader:
    """Grades candidates by what `GradeFeatures` measures.

    >>> from qbe.grade.model import default_model, read_model
    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> facets = {f: EncodedAspect.of(Aspect(paper, f), index.vectors(paper)) for f in Facet}
    >>> with index.reading() as reader:
    ...     grader = Grader(GradeFeatures(reader, Workers()), read_model(default_model()))
    ...     rows = np.array([reader.papers.row("s036"), reader.papers.row("s051")])
    ...     grades = grader.by_vectors(GradeRequest(facets, rows))
    >>> bool((grades[0] > grades[1]).all())
    True
    """

    def __init__(self, features: GradeFeatures, model: GradeModel) -> None:
        self._features, self._model = features, model

    @property
    def reranks(self) -> bool:
        """Whether a reranker takes part in `batch_grade`."""
        return self._features.reranks

    def by_vectors(self, request: GradeRequest) -> Grades:
        """Grades of candidates by stored vectors alone."""
        return self._model.grades(self._features.by_vectors(request), VECTORS, len(request.rows))

    def batch_grade(self, requests: Sequence[GradeRequest], progress: Progress | None = None) -> list[Graded]:
        """Grades of the candidates of each request by all that is known."""
        known = RERANKED if self.reranks else VECTORS
        measured = self._features.batch(requests, progress)
        return [
            Graded(self._model.grades(features, known, len(request.rows)), reranked)
            for request, (features, reranked) in zip(requests, measured, strict=True)
        ]
