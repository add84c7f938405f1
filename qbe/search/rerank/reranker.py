"""What every reranker does, and functions and models of other libraries as rerankers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from qbe.errors import ModelError
from qbe.models.pooling import EncodedAspect
from qbe.query import Aspect
from qbe.types import Match, Paper, TransportEntry
from qbe.util.parallel import Workers

Progress = Callable[[int], object]
"""Called, always from the calling thread, with the number of papers scored since the last call."""


class RerankScore(NamedTuple):
    """A reranker's score of one candidate, and the pair of sentences that contributed most to it.

    Scores compare within one aspect only; more is better. ``match`` is None where a reranker compares no
    sentences. ``plan`` is the transport plan, largest mass first, negligible masses left out; it is empty
    where a reranker has none. ``grades`` are those in each facet, by its name, of a reranker that gives some.
    """

    score: float
    match: Match | None = None
    plan: tuple[TransportEntry, ...] = ()
    grades: Mapping[str, float] | None = None


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


def scored_in_threads(
    score: Callable[[RerankRequest], list[RerankScore]],
    requests: Sequence[RerankRequest],
    workers: Workers,
    progress: Progress | None,
) -> list[list[RerankScore]]:
    """The scores of each request by a function of one, as many at a time as ``workers`` have threads."""
    scored = []
    for scores in workers.map(score, requests):
        scored.append(scores)
        if progress and scores:
            progress(len(scores))
    return scored


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
        """See `Reranker.batch_score`; raises ModelError for another number of scores than papers, and for
        what is no number.
        """
        results = []
        for query, papers in requests:
            given: Any = self._function(query.aspect, papers) if papers else []
            if isinstance(given, Iterable) and not isinstance(given, Mapping | str):
                given = list(given)
            try:
                scores = [float(score) for score in given] if isinstance(given, list) else None
            except (TypeError, ValueError):
                scores = None
            if scores is None:
                raise ModelError(
                    f"expected a list of numbers of the reranker {self.name}, one for each paper, found "
                    f"{given!r:.60}; return one"
                )
            if len(scores) != len(papers):
                raise ModelError(
                    f"expected {len(papers)} scores of the reranker {self.name}, one for each paper, found "
                    f"{len(scores)}; return one for each"
                )
            results.append([RerankScore(score) for score in scores])
            if progress and papers:
                progress(len(papers))
        return results


def query_text(aspect: Aspect) -> str:
    """The text of an aspect: the title, and the sentences that it selects.

    >>> from qbe.types import Facet, Sentence
    >>> sentences = (Sentence("Stone is hard.", Facet.BACKGROUND), Sentence("We cut it.", Facet.METHOD))
    >>> query_text(Aspect(Paper("1", "On stone", sentences, labelled=True), Facet.METHOD))
    'On stone. We cut it.'
    """
    return _joined(aspect.paper.title, " ".join(aspect.paper.texts(aspect.selected_positions())))


def paper_text(paper: Paper) -> str:
    """The text of a candidate: title and abstract."""
    return _joined(paper.title, paper.abstract)


def _joined(title: str, text: str) -> str:
    return f"{title.rstrip('. ')}. {text}" if title.strip() else text


def scoring_of(model: Any) -> Scoring | None:
    """The function that scores by a model of sentence-transformers, None for other objects.

    A cross-encoder (with ``predict``) reads `query_text` and `paper_text` as a pair. An encoder (with
    ``encode``) reads them one by one; the score is the cosine of their vectors.

    >>> class Overlap:
    ...     def predict(self, pairs):
    ...         return [len(set(query.split()) & set(paper.split())) for query, paper in pairs]
    >>> from qbe.types import Sentence
    >>> paper = Paper("1", "", (Sentence("We cut stone"),))
    >>> scoring_of(Overlap())(Aspect(paper), [paper, Paper("2", "", (Sentence("We cut"),))])
    [3.0, 2.0]
    """
    if callable(getattr(model, "predict", None)):

        def by_pairs(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
            query = query_text(aspect)
            return [float(score) for score in model.predict([(query, paper_text(each)) for each in papers])]

        return by_pairs
    if callable(getattr(model, "encode", None)):

        def by_vectors(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
            texts = [query_text(aspect), *map(paper_text, papers)]
            query, *candidates = model.encode(texts, normalize_embeddings=True)
            return [float(query @ candidate) for candidate in candidates]

        return by_vectors
    return None
