"""What every reranker does: score candidates for an aspect of a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from qbe.encode.aspect import EncodedAspect
from qbe.errors import ModelError
from qbe.query import Aspect
from qbe.types import Match, Paper, TransportEntry

Progress = Callable[[int], object]
"""Called, always from the calling thread, with the number of papers scored since the last call."""


class RerankScore(NamedTuple):
    """A reranker's score of one candidate, and the pair of sentences that contributed most to it.

    Scores compare within one aspect only; more is better. ``match`` is None where a reranker compares no
    sentences. ``plan`` is the transport plan, largest mass first, negligible masses left out; it is empty
    where a reranker has none.
    """

    score: float
    match: Match | None = None
    plan: tuple[TransportEntry, ...] = ()


class RerankRequest(NamedTuple):
    """An aspect and the candidates to be scored for it; a paper of several requests is best one object."""

    query: EncodedAspect
    papers: Sequence[Paper]


class Reranker(Protocol):
    """Scores candidates for an aspect of a query, one candidate at a time.

    A paper's score depends neither on the other papers nor on their order nor on the number of threads.
    """

    @property
    def name(self) -> str:
        """The name in the model's metadata, or that of the matching."""

    @property
    def needs_vectors(self) -> bool:
        """Whether requests must bring the vectors of the aspect's sentences."""

    @property
    def takes_whole_abstracts(self) -> bool:
        """Whether it scores aspects that are no facet; those that it does not take keep the first stage's
        order.
        """

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """For each request one score a paper, in the order of its papers.

        What concerns a candidate alone is computed once for all requests, and no thread waits for the end of
        a request.
        """


Scoring = Callable[[Aspect, Sequence[Paper]], Sequence[float]]
"""Gives a score for each paper, more is better, for an aspect of a query."""


class FunctionReranker:
    """Any function of an aspect and papers as a reranker, called for the papers of one aspect at a time.

    >>> from qbe.types import Sentence
    >>> papers = [Paper(name, "", (Sentence(name),)) for name in ("rivers", "seas")]
    >>> longest = FunctionReranker(lambda aspect, papers: [len(paper.abstract) for paper in papers])
    >>> ((first, second),) = longest.batch_score([RerankRequest(EncodedAspect.of(Aspect(papers[0])), papers)])
    >>> first.score, second.score
    (6.0, 4.0)
    """

    needs_vectors = False
    takes_whole_abstracts = True

    def __init__(self, function: Scoring) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `Reranker.batch_score`; raises ModelError for another number of scores than papers."""
        results = []
        for query, papers in requests:
            scores = [float(score) for score in self._function(query.aspect, papers)] if papers else []
            if len(scores) != len(papers):
                raise ModelError(
                    f"expected {len(papers)} scores of the reranker {self.name}, one for each paper, found "
                    f"{len(scores)}; return one for each"
                )
            results.append([RerankScore(score) for score in scores])
            if progress and papers:
                progress(len(papers))
        return results
