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

FORGET_AFTER = 20
"""Queries in a row without time for reranking, after which it is measured anew what a pair takes."""

Clock = Callable[[], float]


class BudgetedStage:
    """Lets a last stage rerank as many of the best candidates as a time in ``seconds`` allows, at most
    ``most``, after the stage ``before`` it, whose time counts too.

    How long a pair takes is learned from the queries before, so that a query takes about the time that it is
    given, not at most; where FORGET_AFTER of them had no time for two candidates, it is measured anew. The
    results depend on the processor and on what else it does. Says in the log how many candidates were
    reranked. Several threads may use it.
    """

    def __init__(
        self,
        last: Callable[[int], SecondStage],
        most: int,
        seconds: float,
        before: SecondStage | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """``last`` gives the last stage for so many papers; ``most`` is how many candidates of a query it
        reranks at the most; ``seconds`` is the wall-clock time for a query, that of ``before`` included;
        ``clock`` gives the time in seconds from any moment.
        """
        self._last, self._most, self._seconds, self._before = last, most, seconds, before
        self._clock, self._lock = clock, threading.Lock()
        self._pair_seconds: float | None = None
        self._left_alone = 0

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
            depth, candidates = 0, min(self._most, len(hits[0]))
            if pairs and candidates > 1:  # of fewer there is no other order, and no time to learn from
                known = self._pair_seconds
                pair = self._learn(reader, request, hits, pairs) if known is None else known
                remaining = self._seconds - (self._clock() - begin)
                depth = min(int(remaining / max(pair * pairs, 1e-9)), candidates)
                if depth > 1:
                    started = self._clock()
                    hits = self._last(depth).rerank(
                        reader, [request], hits, explain=explain, progress=progress
                    )
                    self._learned((self._clock() - started) / (pairs * depth))
                else:
                    depth = 0
                    self._had_no_time()
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
    ) -> float:
        """The seconds that a pair takes, out of two trials with TRIAL candidates each, of which there are as
        many: what is slow once, such as threads that start, is not to count.
        """
        trial, taken = self._last(TRIAL), []
        for _ in range(2):
            begin = self._clock()
            trial.rerank(reader, [request], hits, explain=False, progress=None)
            taken.append(self._clock() - begin)
        seconds = min(taken) / (pairs * TRIAL)
        with self._lock:
            self._pair_seconds = seconds
        return seconds

    def _learned(self, seconds: float) -> None:
        with self._lock:
            known = seconds if self._pair_seconds is None else self._pair_seconds
            self._pair_seconds = MEMORY * known + (1 - MEMORY) * seconds
            self._left_alone = 0

    def _had_no_time(self) -> None:
        """Count a query that was not reranked; after FORGET_AFTER of them what is known is forgotten."""
        with self._lock:
            self._left_alone += 1
            if self._left_alone >= FORGET_AFTER:
                self._pair_seconds, self._left_alone = None, 0
