"""Splits of papers by their years: train is the past, dev what came then, test what came last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TRAIN, DEV, TEST = SPLITS = ("train", "dev", "test")

Assigned = dict[str, str]
"""The split of a paper by its id."""


def by_share(years: Mapping[str, int], train: float = 0.8) -> Assigned:
    """Train is the share ``train`` of the papers, the oldest; the others are dev and test, half each.

    Papers of one year keep their order, and may be in two splits.

    >>> by_share({"a": 2003, "b": 2001, "c": 2002, "d": 2002}, train=0.5)
    {'b': 'train', 'c': 'train', 'd': 'dev', 'a': 'test'}
    """
    oldest_first = sorted(years, key=years.__getitem__)
    trained = int(train * len(years))
    chosen = trained + (len(years) - trained) // 2
    return {
        paper_id: TRAIN if place < trained else DEV if place < chosen else TEST
        for place, paper_id in enumerate(oldest_first)
    }


def by_last_years(years: Mapping[str, int], last_years: Sequence[float], first_year: float = 0) -> Assigned:
    """The splits, in the order of SPLITS, end with the ``last_years``.

    Papers before ``first_year``, and those after all of ``last_years``, are in none.

    >>> by_last_years({"a": 1990, "b": 2007, "c": 2008, "d": 2012}, [2007, 2008, 2011], first_year=1991)
    {'b': 'train', 'c': 'dev'}
    """
    ends = list(zip(SPLITS, last_years, strict=False))
    assigned = {}
    for paper_id, year in years.items():
        split = next((name for name, last in ends if year <= last), None)
        if split is not None and year >= first_year:
            assigned[paper_id] = split
    return assigned
