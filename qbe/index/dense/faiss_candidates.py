"""Candidate papers from the sentences that FAISS finds nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from qbe.index.dense.contracts import Floats
from qbe.index.rows import Rows

MOST_POSITIONS = 1 << 24
"""Positions that FAISS returns in one call, at 12 bytes each, unless a single query needs more."""


class SentenceSearch(Protocol):
    """Finds nearest sentences: one FAISS index or several."""

    @property
    def min_candidates(self) -> int:
        """Sentences to be looked up for each sentence of a query, at the least."""

    def nearest(self, queries: Floats, count: int) -> Rows:
        """Positions (queries, count or more) of the nearest sentences; -1 where fewer were found."""


class FaissCandidates:
    """A `qbe.index.dense.contracts.CandidateSource` over the FAISS indexes of an index.

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

    def nearest(self, queries: Sequence[Floats], k: int) -> Iterator[Rows]:
        """See `qbe.index.dense.contracts.CandidateSource.nearest`.

        For each query sentence at least ``max(min_candidates, 2 * k)`` nearest sentences are looked up, in
        one call of FAISS for as many queries as MOST_POSITIONS allows.
        """
        count = max(self.sentences.min_candidates, 2 * k)
        most = max(1, MOST_POSITIONS // min(count, int(self._starts[-1])))
        for group in _groups(queries, most):
            positions = self.sentences.nearest(np.concatenate(group), count)
            for query_positions in np.split(positions, np.cumsum([len(query) for query in group])[:-1]):
                unique = np.unique(query_positions[query_positions >= 0])
                yield np.unique(np.searchsorted(self._starts, unique, side="right") - 1)


def _groups(arrays: Sequence[Floats], most: int) -> Iterator[list[Floats]]:
    """Consecutive arrays, as many at a time as have ``most`` rows together, and at least one."""
    group: list[Floats] = []
    for array in arrays:
        if group and sum(map(len, group)) + len(array) > most:
            yield group
            group = []
        group.append(array)
    if group:
        yield group
