"""Candidate papers from the sentences that FAISS finds nearest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.scoring import may_be_best
from qbe.index.dense.vectors import Floats
from qbe.index.rows import PerSelection, Rows, Selection, distinct

MOST_POSITIONS = 1 << 24
"""Positions that FAISS returns in one call, at 12 bytes each, unless a single query needs more."""

FEW_SENTENCES = 50_000
"""Sentences of selected papers up to which all these papers are candidates: scoring some 7,000 papers takes
as long as a search without a filter and the scoring of its candidates do, and is exact."""

FIRST_SENTENCES, FIRST_PER_PAPER = 200, 12
"""Sentences looked up at first where their similarities tell which papers can be among the best: so many, and
so many times the papers asked for. Of CSFCube's queries for 10 to 100 papers 97 to 99 % need no more."""

BREADTH = 2
"""How many times the usual number of lists is read for selected papers: the nearest of them are farther, and
so in other lists, than the nearest of all."""


class SentenceSearch(Protocol):
    """Finds nearest sentences: one FAISS index or several."""

    @property
    def min_candidates(self) -> int:
        """At least this many sentences are looked up for each sentence of a query."""

    def nearest(self, queries: Floats, count: int, allowed: Any = None, breadth: int = 1) -> Rows:
        """Positions (queries, count or more) of the nearest sentences; -1 where fewer were found.

        ``allowed`` restricts them to some sentences, as `select` gives them; ``breadth`` is how many times
        the lists are read that are usually.
        """

    def nearest_scored(self, queries: Floats, count: int) -> tuple[Floats, Rows] | None:
        """The similarities of the nearest sentences, up to `qbe.index.dense.scoring.TOLERANCE`, best first,
        and their positions, each (queries, count); None where what is compared tells less.
        """

    def select(self, mask: NDArray[np.bool_]) -> Any:
        """Some sentences (sentences,) in the form that `nearest` takes."""


class _Selected(NamedTuple):
    """The sentences of selected papers: how many, and in the form that searches take."""

    size: int
    sentences: Any


class FaissCandidates:
    """A `qbe.index.dense.vectors.CandidateSource` over the FAISS indexes of an index.

    >>> source = FaissCandidates(index.candidate_source().sentences, index.layout.starts)
    >>> query = index.sentence_vectors[:2].astype(np.float32)
    >>> [len(rows) for rows in source.nearest([query], k=10)]
    [128]
    """

    def __init__(self, sentences: SentenceSearch, starts: Rows) -> None:
        """``sentences`` finds nearest sentences; those of paper i are from ``starts[i]`` to
        ``starts[i + 1]``, (papers + 1,).
        """
        self.sentences, self._starts = sentences, starts
        self._selected = PerSelection(self._selected_sentences)

    def nearest(
        self,
        queries: Sequence[Floats],
        k: int,
        allowed: Selection | None = None,
        by_mean: bool = False,
    ) -> Iterator[Rows]:
        """See `qbe.index.dense.vectors.CandidateSource.nearest`.

        For each query sentence at least ``max(min_candidates, 2 * k)`` nearest sentences are looked up, in
        one call of FAISS for as many queries as MOST_POSITIONS allows; ``by_mean`` fewer, where their
        similarities show that these name all that can be among the best. Of selected papers all are
        candidates where they are few; else more lists are read, and more and more sentences looked up until
        there are candidates enough.
        """
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
        search = partial(self.sentences.nearest, allowed=selected.sentences, breadth=BREADTH)
        for query, rows in zip(queries, self._papers(queries, count, search), strict=True):
            yield rows if len(rows) >= k else self._more(query, k, count, allowed)

    def _may_be_best(self, queries: Sequence[Floats], k: int, count: int) -> Sequence[Rows]:
        """For each query the candidates that can be among its best ``k``: those of few sentences, where these
        show that no other paper can, else those of ``count``.
        """
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
            for place, near, of in zip(
                waiting, np.split(similarities, ends), np.split(papers, ends), strict=True
            ):
                best = may_be_best(near, of, len(self._starts) - 1, k)
                candidates[place] = best.rows
                if not best.are_all:
                    unsettled.append(place)
            waiting = unsettled
        return candidates

    def _papers(
        self, queries: Sequence[Floats], count: int, search: Callable[[Floats, int], Rows]
    ) -> Iterator[Rows]:
        """For each query the papers of the sentences that a search finds."""
        for group in self._groups(queries, count):
            positions = search(np.concatenate(group), count)
            for query_positions in np.split(positions, _ends(group)):
                unique = distinct(query_positions[query_positions >= 0])
                yield distinct(np.searchsorted(self._starts, unique, side="right") - 1)

    def _groups(self, queries: Sequence[Floats], count: int) -> Iterator[list[Floats]]:
        """Queries that are looked up together: as many as MOST_POSITIONS allows, and at least one."""
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
        """At least ``k`` candidates, where there are more selected papers and ``count`` sentences of each of
        the query's were too few.
        """
        selected, breadth = self._selected(allowed), BREADTH
        while count < selected.size:
            count, breadth = 2 * count, 2 * breadth
            search = partial(self.sentences.nearest, allowed=selected.sentences, breadth=breadth)
            (rows,) = self._papers([query], count, search)
            if len(rows) >= k:
                return rows
        return allowed.rows

    def _selected_sentences(self, selection: Selection) -> _Selected:
        mask = selection.sentences(self._starts)
        return _Selected(int(np.count_nonzero(mask)), self.sentences.select(mask))


def _ends(arrays: Sequence[Floats]) -> Rows:
    """Where arrays that are concatenated end, all but the last."""
    return np.cumsum([len(array) for array in arrays], dtype=np.int64)[:-1]
