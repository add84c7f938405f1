"""Queries by the year in which their papers were published."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qbe.evaluate.results import ALL
from qbe.types import Paper

NO_YEAR = "no year"


def year_scopes(query_ids: Collection[str], papers: Mapping[str, Paper]) -> dict[str, tuple[str, ...]]:
    """Return the queries of each year, in ascending order, those without a year, and all.

    Args:
        query_ids: ids of queries, which are those of their papers.
        papers: these papers by id.

    >>> papers = {"a": Paper("a", "", (), metadata={"year": 2020}), "b": Paper("b", "", ())}
    >>> year_scopes("ab", papers)
    {'2020': ('a',), 'no year': ('b',), 'all': ('a', 'b')}
    """
    by_year: dict[str, list[str]] = {}
    for query in query_ids:
        by_year.setdefault(papers[query].year or NO_YEAR, []).append(query)
    years = sorted(by_year, key=lambda year: (year == NO_YEAR, year))
    return {year: tuple(by_year[year]) for year in years} | {ALL: tuple(query_ids)}
