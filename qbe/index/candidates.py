"""Candidate papers for dense search: the papers of the sentences that FAISS finds nearest.

Dense search has two steps: a `CandidateSource` finds papers that may be near, and a
`qbe.index.scoring.VectorStore` compares their stored vectors exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from qbe.index.faiss import FaissIndex
from qbe.index.rows import PerSelection, Rows, Selection, distinct
from qbe.index.scoring import may_be_best
from qbe.index.vectors import Floats

# Positions that FAISS returns in one call, at 12 bytes each, unless a single query needs more.
MOST_POSITIONS = 1 << 24
# Sentences of selected papers up to which all these papers are candidates: scoring some 7,000 papers takes
# as long as an unfiltered search with the scoring of its candidates, and is exact.
FEW_SENTENCES = 50_000
# Sentences looked up first where their similarities tell which papers can be among the best, in all and per
# paper asked for. 97 to 99 % of CSFCube's queries for 10 to 100 papers need no more.
FIRST_SENTENCES, FIRST_PER_PAPER = 200, 12
# Factor on the usual number of lists for selected papers: the nearest of them are farther away, and so in
# other lists, than the nearest of all.
BREADTH = 2


class CandidateSource(Protocol):
    """Finds the papers whose sentences are nearest to those of a query; several threads may share one."""

    def nearest(
        self, queries: Sequence[Floats], k: int, allowed: Selection | None = None, by_mean: bool = False
    ) -> Iterator[Rows]:
        """Yield the candidates of each query: rows of papers, int64, ascending, each once.

        A query is the vectors of its sentences, (n, dimension) float32. There should be at least ``k``
        candidates, and are where ``allowed`` restricts them to enough papers. Where papers are then scored
        ``by_mean`` (`qbe.index.scoring.mean_max`), a source may leave out those that cannot be among the best
        ``k``. The candidates of one query do not depend on the others.
        """


class FaissCandidates:
    """A `CandidateSource` over a FAISS index."""

    def __init__(self, sentences: FaissIndex, starts: Rows) -> None:
        """Sentences of paper i are from ``starts[i]`` to ``starts[i + 1]``; ``starts`` is (papers + 1,)."""
        self.sentences, self._starts = sentences, starts
        self._selected = PerSelection(lambda some: sentences.select(some.sentences(starts)))

    def nearest(
        self, queries: Sequence[Floats], k: int, allowed: Selection | None = None, by_mean: bool = False
    ) -> Iterator[Rows]:
        count = max(self.sentences.min_candidates, 2 * k)
        if allowed is None:
            if by_mean:
                for group in self._groups(queries, count):
                    yield from self._may_be_best(group, k, count)
            else:
                yield from self._papers(queries, count, self.sentences.nearest)
            return
        selected = self._selected(allowed)
        if selected.size <= FEW_SENTENCES or len(allowed) <= 2 * k:
            yield from (allowed.rows for _ in queries)
            return
        search = partial(self.sentences.nearest, allowed=selected, breadth=BREADTH)
        for query, rows in zip(queries, self._papers(queries, count, search), strict=True):
            yield rows if len(rows) >= k else self._more(query, k, count, allowed)

    def _may_be_best(self, queries: Sequence[Floats], k: int, count: int) -> Sequence[Rows]:
        """Look up few sentences, and ``count`` where these do not show that no other paper can be better."""
        candidates: list[Rows] = [np.zeros(0, np.int64)] * len(queries)
        waiting: Sequence[int] = range(len(queries))
        for looked_up in sorted({min(count, max(FIRST_SENTENCES, FIRST_PER_PAPER * k)), count}):
            if not waiting:
                break
            vectors = [queries[place] for place in waiting]
            scored = self.sentences.nearest_scored(np.concatenate(vectors), looked_up)
            if scored is None:
                return list(self._papers(queries, count, self.sentences.nearest))
            similarities, positions = scored
            papers = np.searchsorted(self._starts, positions, side="right") - 1
            ends = _ends(vectors)
            unsettled = []
            split = np.split(similarities, ends), np.split(papers, ends)
            for place, near, of in zip(waiting, *split, strict=True):
                best = may_be_best(near, of, len(self._starts) - 1, k)
                candidates[place] = best.rows
                if not best.are_all:
                    unsettled.append(place)
            waiting = unsettled
        return candidates

    def _papers(
        self, queries: Sequence[Floats], count: int, search: Callable[[Floats, int], Rows]
    ) -> Iterator[Rows]:
        for group in self._groups(queries, count):
            positions = search(np.concatenate(group), count)
            for query_positions in np.split(positions, _ends(group)):
                unique = distinct(query_positions[query_positions >= 0])
                yield distinct(np.searchsorted(self._starts, unique, side="right") - 1)

    def _groups(self, queries: Sequence[Floats], count: int) -> Iterator[list[Floats]]:
        """Yield queries that are looked up together: as many as MOST_POSITIONS allows, and at least one."""
        most = max(1, MOST_POSITIONS // min(count, int(self._starts[-1])))
        group: list[Floats] = []
        for query in queries:
            if group and sum(map(len, group)) + len(query) > most:
                yield group
                group = []
            group.append(query)
        if group:
            yield group

    def _more(self, query: Floats, k: int, count: int, allowed: Selection) -> Rows:
        """Look up more sentences until there are ``k`` candidates; all selected papers at the last."""
        selected, breadth = self._selected(allowed), BREADTH
        while count < selected.size:
            count, breadth = 2 * count, 2 * breadth
            search = partial(self.sentences.nearest, allowed=selected, breadth=breadth)
            (rows,) = self._papers([query], count, search)
            if len(rows) >= k:
                return rows
        return allowed.rows


def _ends(arrays: Sequence[Floats]) -> Rows:
    """Return where arrays end once they are concatenated, all but the last."""
    return np.cumsum([len(array) for array in arrays], dtype=np.int64)[:-1]
