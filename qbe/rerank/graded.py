"""Grades of candidates in each facet, from 0 to 3, by stored vectors and words, and a reranker by them.

A candidate is compared with a paper in several views: projected and plain sentence vectors of each facet
(`qbe.rerank.projections`), also weighted by the tagger's probabilities, and the words of techniques and
problems that both have (`qbe.grade.words`). The grade model turns these features into grades.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from qbe.encode.pooling import PaperVectors
from qbe.grade.model import Estimates, GradeModel
from qbe.grade.words import NAMES as WORD_FEATURES
from qbe.grade.words import TechniqueWords, facet_shares
from qbe.parallel import Workers
from qbe.rerank.projections import (
    TERMS,
    Doubles,
    FacetProjection,
    Space,
    StoredPapers,
    VectorSource,
    closest_pair,
    mark_facet,
    projected,
    unit,
)
from qbe.rerank.reranker import Progress, RerankRequest, RerankScore, scored_in_threads
from qbe.types import Facet, Paper

_SPACES = ("projected", "plain")
_OTHERS = tuple(permutations(range(len(Facet)), 2))
_NAMES = tuple(facet.value for facet in Facet)

FEATURES = (
    *(
        f"{facet}.{space}.{term}"
        for facet in _NAMES
        for space in _SPACES
        for term in (*TERMS, "best", "by probability", "all by probability")
    ),
    *(f"{_NAMES[first]}.with {_NAMES[second]}" for first, second in _OTHERS),
    *(f"{facet}.of candidate" for facet in _NAMES),
    "sentences of query",
    "sentences of candidate",
    *WORD_FEATURES,
)
"""The names of the features of a candidate, in their order."""


class GradedQuery(NamedTuple):
    """A paper that candidates are graded by, with its labels, and the vectors of all its sentences."""

    paper: Paper
    vectors: PaperVectors


class Compared(NamedTuple):
    """Candidates compared with a paper: ``values`` (candidates, FEATURES), NaN where the paper has no
    sentence of a facet; by facet the ``cosines`` (query's sentences, candidates' sentences) of projected
    vectors; and where the sentences of each candidate lie among these.
    """

    values: Doubles
    cosines: Sequence[Doubles]
    places: Sequence[slice]


class Features:
    """Compares candidates with a paper in every view.

    >>> from qbe.grade.words import shipped_words
    >>> from qbe.rerank.projections import find_model, read_model
    >>> from qbe.search.opening import stored_vectors
    >>> projections = read_model(find_model(index.manifest.dense["encoder"])).projections
    >>> features = Features(projections, shipped_words(), stored_vectors(index))
    >>> paper = index.paper("s036")
    >>> compared = features.compare(GradedQuery(paper, index.vectors(paper)), [paper])
    >>> round(float(compared.values[0, FEATURES.index("method.plain.whole")]), 2)
    1.0
    """

    def __init__(
        self, projections: Mapping[Facet, FacetProjection], words: TechniqueWords, vectors: VectorSource
    ) -> None:
        """``vectors`` gives the stored vectors of candidates, by the encoder that the projections read."""
        self._projections, self._words, self._vectors = projections, words, vectors

    def compare(self, query: GradedQuery, candidates: Sequence[Paper]) -> Compared:
        """The features of candidates."""
        if not candidates:
            return Compared(np.empty((0, len(FEATURES))), [], [])
        stored = self._vectors(candidates)
        by_vectors, cosines = _by_vectors(query, candidates, stored, self._projections)
        by_words = self._words.compare(query.paper, candidates)
        return Compared(np.concatenate([by_vectors, by_words], axis=1), cosines, stored.places())

    def similarities(self, papers: Sequence[Paper]) -> Doubles:
        """How alike papers are, (facets, papers, papers): the cosines of the sums of their projected
        sentences of each facet, in the order of `qbe.types.Facet`.
        """
        if not papers:
            return np.empty((len(Facet), 0, 0))
        stored = self._vectors(papers)
        by_facet = []
        for facet in Facet:
            marked = mark_facet(papers, facet, stored)[:, None]
            vectors = projected(stored.sentences, self._projections[facet].matrix)
            sums = unit(np.add.reduceat(np.where(marked, vectors, 0.0), stored.starts, axis=0))
            by_facet.append(sums @ sums.T)
        return np.stack(by_facet)


class Grader:
    """Grades candidates by their features.

    >>> from qbe.search.opening import open_grader
    >>> grader, paper = open_grader(index), index.paper("s036")
    >>> (grades, *_), _ = grader.grade(GradedQuery(paper, index.vectors(paper)), [paper, index.paper("s051")])
    >>> grades.shape, bool((grades[0] > grades[1]).all())
    ((2, 3), True)
    """

    def __init__(self, features: Features, model: GradeModel) -> None:
        """``model`` was trained on such features."""
        self._features, self._model = features, model

    def similarities(self, papers: Sequence[Paper]) -> Doubles:
        """See `Features.similarities`."""
        return self._features.similarities(papers)

    def grade(self, query: GradedQuery, candidates: Sequence[Paper]) -> tuple[Estimates, Compared]:
        """What is estimated of candidates, and what it comes from."""
        compared = self._features.compare(query, candidates)
        return self._model.estimates(compared.values), compared


def _by_vectors(
    query: GradedQuery,
    candidates: Sequence[Paper],
    stored: StoredPapers,
    projections: Mapping[Facet, FacetProjection],
) -> tuple[Doubles, list[Doubles]]:
    starts, mine, theirs = stored.starts, _shares([query.paper]), _shares(candidates)
    plain = Space.of(query.vectors.sentences, query.vectors.whole, stored, None)
    columns: list[Doubles] = []
    cosines: list[Doubles] = []
    for facet, share, of_candidates in zip(Facet, mine, np.sqrt(theirs), strict=True):
        positions = list(query.paper.facet_positions(facet)[0])
        marked = mark_facet(candidates, facet, stored)
        matrix = projections[facet].matrix
        space = Space.of(query.vectors.sentences, query.vectors.whole, stored, matrix)
        cosines.append(space.cosines)
        for each in (space, plain):
            if not positions:
                columns += [np.full(len(candidates), np.nan)] * (len(TERMS) + 3)
                continue
            by_share = np.maximum.reduceat(each.cosines * of_candidates, starts, axis=1)
            columns += each.terms(positions, marked, starts)
            columns += [
                each.best[positions].max(axis=0),
                _mean(by_share, share),
                _mean(each.best, share),
            ]
    for first, second in _OTHERS:
        by_share = np.maximum.reduceat(plain.cosines * np.sqrt(theirs[second]), starts, axis=1)
        columns.append(_mean(by_share, mine[first]))
    nearest = plain.cosines.max(axis=0)
    for share in theirs:
        columns.append(np.add.reduceat(nearest * share, starts) / (np.add.reduceat(share, starts) + _LEAST))
    sizes = np.diff([*starts.tolist(), len(stored.sentences)])
    columns += [np.full(len(candidates), np.log(len(query.paper.sentences))), np.log(sizes)]
    return np.stack(columns, axis=1), cosines


_LEAST = 1e-6


def _mean(values: Doubles, weights: Doubles) -> Doubles:
    """The weighted mean of values (sentences, candidates) over the sentences."""
    mean: Doubles = weights @ values / (weights.sum() + _LEAST)
    return mean


def _shares(papers: Sequence[Paper]) -> Doubles:
    """How much each sentence of papers is background, method and result, (3, sentences)."""
    return np.array([facet_shares(each) for paper in papers for each in paper.sentences], np.float64).T


class GradedReranker:
    """Scores candidates for an aspect that is a facet by their estimated grade in it.

    Of a score, ``match`` is the closest pair of sentences by projected vectors.
    """

    name = "grades"
    needs_vectors = True
    takes_whole_abstracts = False

    def __init__(self, grader: Grader, workers: Workers | None = None) -> None:
        """``workers`` score as many requests at a time as they have threads (by default one)."""
        self._grader, self._workers = grader, workers or Workers()

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        return scored_in_threads(self._score, requests, self._workers, progress)

    def _score(self, request: RerankRequest) -> list[RerankScore]:
        query, papers = request
        facet, vectors = query.aspect.facet, query.vectors
        assert facet is not None and vectors is not None
        estimates, compared = self._grader.grade(GradedQuery(query.aspect.paper, vectors), papers)
        place = list(Facet).index(facet)
        scores = []
        for grade, sentences in zip(estimates.grades[:, place].tolist(), compared.places, strict=True):
            cosines = compared.cosines[place][list(query.positions), sentences]
            scores.append(RerankScore(grade, closest_pair(cosines, query.positions)))
        return scores
