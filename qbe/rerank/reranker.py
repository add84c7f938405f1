"""What every reranker does: score candidates for an aspect of a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from qbe.encode.aspect import EncodedAspect
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

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """For each request one score a paper, in the order of its papers.

        What concerns a candidate alone is computed once for all requests, and no thread waits for the end of
        a request.
        """
