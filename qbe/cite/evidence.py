"""What the metadata of an index says of its papers beside their texts: years, and who cites whom."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qbe.cite.links import CitationLinks
from qbe.index.reader import IndexReader
from qbe.search.filters import year_of

Doubles = NDArray[np.float64]


class Evidence:
    """Years and citations of the papers of one commit of an index, by row.

    ``years`` (papers,) float64 has NaN where a year is not known.

    >>> with index.reading() as reader:
    ...     evidence = Evidence(reader)
    >>> evidence.years.shape, len(evidence.links)
    ((128,), 0)
    """

    def __init__(self, reader: IndexReader) -> None:
        metadata = list(reader.papers.read_metadata())
        if reader.papers.has_deleted:  # a deleted paper cites nobody
            alive = reader.papers.live_mask.tolist()
            metadata = [each if is_alive else {} for each, is_alive in zip(metadata, alive, strict=True)]
        self.years: Doubles = np.array([year_of(each) or np.nan for each in metadata], np.float64)
        self.links = CitationLinks.of(metadata, reader.papers.find)

    def ages(self, rows: NDArray[np.int64], year: int | None) -> Doubles:
        """The years (n,) from each paper to ``year``; NaN where either is not known."""
        ages: Doubles = (np.nan if year is None else float(year)) - self.years[rows]
        return ages

    def citing_papers(self, year: int | None, row: int | None) -> NDArray[np.bool_]:
        """Which papers (papers,) may be asked whom they cite: not the one at ``row``, and where the query's
        ``year`` is known only earlier ones.
        """
        known = np.ones(len(self.years), np.bool_) if year is None else self.years < year
        if row is not None:
            known[row] = False
        return known
