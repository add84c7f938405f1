"""What every reranker does: score candidates for a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from qbe.query import Query
from qbe.types import Match, Paper, TransportEntry


class RerankScore(NamedTuple):
    """A reranker's score of one candidate, and the pair of sentences that drove it.

    Scores compare within one query only; more is better. ``match`` is None where a reranker knows no
    sentences. ``plan`` tells which sentence went where, largest mass first, negligible masses left out; it is
    empty where a reranker transports none.
    """

    score: float
    match: Match | None = None
    plan: tuple[TransportEntry, ...] = ()


Asked = Sequence[tuple[Query, Sequence[Paper]]]
"""Queries, each with the candidates to be judged for it; a paper of several queries is best one object."""


class Reranker(Protocol):
    """Reads a query and one candidate at a time."""

    @property
    def name(self) -> str:
        """The name that the model's card gives, or that of the matching."""

    def score(
        self, query: Query, papers: Sequence[Paper], progress: Callable[[int], None] | None = None
    ) -> list[RerankScore]:
        """One judgement for each paper, in the order given.

        A paper's judgement depends neither on the other papers nor on their order nor on the number of
        threads. ``progress`` is called, always from the calling thread, with the number of papers judged
        since the last call. Raises what `qbe.encode.selection.selected_positions` raises for the query.
        """

    def batch_score(
        self, asked: Asked, progress: Callable[[int], None] | None = None
    ) -> list[list[RerankScore]]:
        """What `score` gives for each query and its papers, bit by bit.

        No thread waits for the end of a query, and what concerns a candidate alone is done once for all.
        """
