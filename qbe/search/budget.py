"""Reranking within a time: as many of the best candidates as can be scored in it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from qbe.index.reader import IndexReader
from qbe.rerank.reranker import Progress
from qbe.search.ranking import RankingRequest
from qbe.search.reranking import SecondStage
from qbe.types import Facet, Hit

log = logging.getLogger(__name__)

TRIAL = 2
"""Candidates of the first query that are scored to learn how long one takes."""

MEMORY = 0.7
"""The share of what was known in a new estimate of the time that a pair takes."""

Clock = Callable[[], float]


class BudgetedStage:
    """Lets a last stage rerank as many of the best candidates as a time in ``seconds`` allows, at most
    ``most``, after the stage ``before`` it, whose time counts too.

    How long a pair takes is learned from the queries before, so that a query takes about the time that it is
    given, not at most. The results depend on the processor and on what else it does. Says in the log how many
    candidates were reranked. Several threads may use it.
    """

    def __init__(
        self,
        last: Callable[[int], SecondStage],
        most: int,
        seconds: float,
        before: SecondStage | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """``last`` gives the last stage for so many papers."""
        self._last, self._most, self._seconds, self._before = last, most, seconds, before
        self._clock, self._lock = clock, threading.Lock()
        self._pair_seconds: float | None = None

    @property
    def needs_vectors(self) -> bool:
        """Whether aspects must bring the vectors of their sentences."""
        before = self._before is not None and self._before.needs_vectors
        return before or self._last(self._most).needs_vectors

    @property
    def depth(self) -> int:
        """How many papers of the first stage are reranked at all, at the most."""
        return self._most if self._before is None else max(self._most, self._before.depth)

    def rerank(
        self,
        reader: IndexReader,
        requests: Sequence[RankingRequest],
        ranked: Sequence[Sequence[Hit]],
        *,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        """See `qbe.search.reranking.SecondStage.rerank`; queries are reranked one by one."""
        final, depths = [], []
        for request, each in zip(requests, ranked, strict=True):
            begin, hits = self._clock(), [list(each)]
            if self._before is not None:
                hits = self._before.rerank(reader, [request], hits, explain=explain, progress=progress)
            facets = [aspect.facet for aspect in request.query.aspects]
            pairs = self._last(1).pair_count(facets, 1)
            depth = 0
            if pairs:
                if self._pair_seconds is None:
                    self._learn(reader, request, hits, pairs)
                depth = self._affordable(self._seconds - (self._clock() - begin), pairs, len(hits[0]))
            if depth > 1:
                started = self._clock()
                hits = self._last(depth).rerank(reader, [request], hits, explain=explain, progress=progress)
                self._learned((self._clock() - started) / (pairs * depth))
            final.append(hits[0])
            depths.append(depth)
        if depths:
            few, many = min(depths), max(depths)
            counted = f"{few}" if few == many else f"{few} to {many}"
            log.info("within %g s the last reranker scored %s candidates a query", self._seconds, counted)
        return final

    def pair_count(self, facets: Sequence[Facet | None], papers: int) -> int:
        """How many pairs are scored for a query, at the most."""
        before = 0 if self._before is None else self._before.pair_count(facets, papers)
        return before + self._last(self._most).pair_count(facets, papers)

    def _learn(
        self, reader: IndexReader, request: RankingRequest, hits: Sequence[Sequence[Hit]], pairs: int
    ) -> None:
        """Score a few candidates twice: what is slow once, such as threads that start, is not to count."""
        trial = self._last(TRIAL)
        for _ in range(2):
            begin = self._clock()
            trial.rerank(reader, [request], hits, explain=False, progress=None)
            seconds = self._clock() - begin
        with self._lock:
            self._pair_seconds = seconds / (pairs * min(TRIAL, len(hits[0]) or 1))

    def _learned(self, seconds: float) -> None:
        with self._lock:
            known = seconds if self._pair_seconds is None else self._pair_seconds
            self._pair_seconds = MEMORY * known + (1 - MEMORY) * seconds

    def _affordable(self, seconds: float, pairs: int, papers: int) -> int:
        assert self._pair_seconds is not None
        each = max(self._pair_seconds * pairs, 1e-9)
        return max(0, min(int(seconds / each), self._most, papers))
