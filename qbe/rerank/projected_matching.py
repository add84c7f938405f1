"""The reranker that matches stored sentence vectors, projected for the facet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qbe.parallel import Workers
from qbe.rerank.projections import Bools, FacetProjection, StoredPapers, compare
from qbe.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.types import Facet, Match, Paper

VectorSource = Callable[[Sequence[Paper]], StoredPapers]
"""Gives the stored vectors of papers, in their order."""


class ProjectedMatching:
    """Scores candidates by late interaction of projected vectors (`qbe.rerank.projections`).

    It takes aspects that are a facet. Of a score, ``match`` is the closest pair of sentences.

    >>> from qbe.encode.aspect import EncodedAspect
    >>> from qbe.query import Aspect
    >>> from qbe.types import Sentence
    >>> axes = np.eye(2)
    >>> paper = Paper("p1", "", (Sentence("We route.", Facet.METHOD), Sentence("It helps.", Facet.RESULT)))
    >>> query = EncodedAspect(Aspect(paper, Facet.METHOD), (0,), axes[:1], axes[0])
    >>> source = lambda papers: StoredPapers(axes, np.array([0]), axes[:1])
    >>> projection = FacetProjection(axes, np.array([4.0, 2.0, 1.0, 0.5]))
    >>> matching = ProjectedMatching(dict.fromkeys(Facet, projection), source)
    >>> ((scored,),) = matching.batch_score([RerankRequest(query, [paper])])
    >>> scored.score, scored.match.position
    (7.5, 0)
    """

    name = "facet-projections"
    needs_vectors = True
    takes_whole_abstracts = False

    def __init__(
        self,
        projections: Mapping[Facet, FacetProjection],
        vectors: VectorSource,
        workers: Workers | None = None,
    ) -> None:
        """``workers`` score as many requests at a time as they have threads (by default one)."""
        self._projections, self._vectors, self._workers = projections, vectors, workers or Workers()

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        scored = []
        for scores in self._workers.map(self._score, requests):
            scored.append(scores)
            if progress:
                for _ in scores:
                    progress(1)
        return scored

    def _score(self, request: RerankRequest) -> list[RerankScore]:
        query, papers = request
        if not papers:
            return []
        stored, facet = self._vectors(papers), query.aspect.facet
        assert facet is not None
        projection = self._projections[facet]
        marked = _marked(papers, facet, stored)
        compared = compare(query.sentence_vectors, query.whole_vector, stored, marked, projection.matrix)
        # In single precision, so that no score depends on the order in which products are summed.
        terms = compared.terms.astype(np.float32).astype(np.float64)
        scores = []
        for place, sentences in enumerate(stored.places()):
            cosines = compared.cosines[:, sentences]
            row, column = np.unravel_index(int(cosines.argmax()), cosines.shape)
            closest = Match(query.positions[row], int(column), float(np.float32(cosines[row, column])))
            scores.append(RerankScore(float(projection.weights @ terms[:, place]), closest))
        return scores


def _marked(papers: Sequence[Paper], facet: Facet, stored: StoredPapers) -> Bools:
    """Marks the sentences (sentences,) of a facet; all of a paper that has none."""
    marked = np.zeros(len(stored.sentences), np.bool_)
    for paper, sentences in zip(papers, stored.places(), strict=True):
        positions = paper.facet_positions(facet)[0]
        marked[sentences][list(positions) or slice(None)] = True
    return marked
