"""Who cites whom among the papers of an index, out of their metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.reader import IndexReader
from qbe.search.filters import year_of

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]


class Neighbours(NamedTuple):
    """Hold papers near a query, by row, with weights (n,) that sum to 1."""

    rows: Ints
    weights: Doubles


class Evidence:
    """Hold years (papers,), NaN where unknown, and who cites whom, ``count`` pairs by row, of one commit."""

    def __init__(self, reader: IndexReader) -> None:
        """Read them from metadata (``cites``: ids of papers)."""
        metadata, cites = list(reader.papers.read_metadata()), list[list[int]]()
        self.years: Doubles = np.array([year_of(each) or np.nan for each in metadata], np.float64)
        for row, each in enumerate(metadata):
            named = each.get("cites")
            ids = named if isinstance(named, list) else []
            rows = {reader.papers.find(paper_id) for paper_id in ids if isinstance(paper_id, str)}
            cites.append(sorted(cited for cited in rows if cited is not None and cited != row))
        counts = np.array([len(rows) for rows in cites], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._cited = np.array([row for rows in cites for row in rows], np.int64)
        self._by, self.count = np.repeat(np.arange(len(cites)), counts), len(self._cited)
        order = np.argsort(self._cited, kind="stable")
        self._citing = self._by[order]
        self._citing_starts = np.searchsorted(self._cited[order], np.arange(len(cites) + 1))

    def ages(self, rows: NDArray[np.int64], year: int | None) -> Doubles:
        """Return the years (n,) from each paper to ``year``; NaN where either is unknown."""
        ages: Doubles = (np.nan if year is None else float(year)) - self.years[rows]
        return ages

    def citing_papers(self, year: int | None, row: int | None) -> NDArray[np.bool_]:
        """Mask the papers whose citations may count: only those before a known ``year``, without ``row``."""
        citing = np.ones(len(self.years), np.bool_) if year is None else self.years < year
        if row is not None:
            citing[row] = False
        return citing

    def cited_by(self, rows: Ints) -> Ints:
        """Return the rows of all papers that these cite, with repetitions."""
        return np.concatenate([np.zeros(0, np.int64), *(self._cites(row) for row in rows.tolist())])

    def citing(self, rows: Ints, earlier: Mask) -> Ints:
        """Return the rows of all ``earlier`` papers that cite these, with repetitions."""
        parts = (self._citing[slice(*self._citing_starts[row : row + 2])] for row in rows.tolist())
        citing = np.concatenate([np.zeros(0, np.int64), *parts])
        return np.asarray(citing[earlier[citing]])

    def popularity(self, rows: Ints, earlier: Mask) -> Doubles:
        """Count the ``earlier`` papers (mask over all) that cite each of the rows (n,)."""
        counts = np.bincount(self._cited[earlier[self._by]], minlength=len(self._starts) - 1)
        return counts[rows].astype(np.float64)

    def share_citing(self, near: Neighbours, rows: Ints) -> Doubles:
        """Return for each of the rows (n,) the weight of the neighbours that cite it."""
        return self._sums(rows, zip(near.rows.tolist(), near.weights.tolist(), strict=True))

    def share_cited(self, near: Neighbours, rows: Ints) -> Doubles:
        """Return for each of the rows (n,) the weight of the neighbours that it cites."""
        weight = np.zeros(len(self._starts) - 1)
        weight[near.rows] = near.weights
        return np.array([weight[self._cites(row)].sum() for row in rows.tolist()])

    def cocited(self, seeds: Ints, rows: Ints, earlier: Mask) -> Doubles:
        """Count for each of the rows (n,) how often ``earlier`` papers cite it together with a seed."""
        return self._sums(rows, ((row, 1.0) for row in self.citing(seeds, earlier).tolist()))

    def cocitation_cosines(self, seeds: Ints, rows: Ints, earlier: Mask) -> Doubles:
        """Sum for each of the rows (n,) over the seeds how often ``earlier`` papers cite both, divided by the
        geometric mean of how often they cite either.
        """
        citing = (self.citing(np.array([seed]), earlier).tolist() for seed in seeds.tolist())
        shares = ((row, 1 / np.sqrt(len(papers))) for papers in citing for row in papers)
        return np.asarray(self._sums(rows, shares) / np.sqrt(np.maximum(self.popularity(rows, earlier), 1)))

    def walks(self, seeds: Ints, rows: Ints, earlier: Mask) -> Doubles:
        """Return for each of the rows (n,) the probability of two random steps, from a seed to an ``earlier``
        paper that cites it and on to what that cites, summed over seeds and first steps (as P3 of Cooper et
        al., 2014).
        """
        papers, seeds_of_each = np.unique(self.citing(seeds, earlier), return_counts=True)
        steps = zip(papers.tolist(), seeds_of_each.tolist(), strict=True)
        return self._sums(rows, ((row, count / len(self._cites(row))) for row, count in steps))

    def _sums(self, rows: Ints, citing: Iterable[tuple[int, float]]) -> Doubles:
        """Add up for each of the rows (n,) the weights of the papers that cite it."""
        total = np.zeros(len(self._starts) - 1)
        for row, weight in citing:
            total[self._cites(row)] += weight
        return np.asarray(total[rows])

    def _cites(self, row: int) -> Ints:
        cited: Ints = self._cited[self._starts[row] : self._starts[row + 1]]
        return cited
