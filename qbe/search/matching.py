"""Scores of candidates from sentence similarities: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Candidates(NamedTuple):
    """The sentences of some papers, laid end to end.

    ``rows`` (sentences,) are positions among the index's sentences; paper i has those from starts[i]
    to starts[i + 1], or to the end for the last; every paper has at least one.
    """

    rows: Ints
    starts: Ints


def gather(papers: Ints, starts: Ints) -> Candidates:
    """The sentences of papers given by row, where ``starts`` (all papers + 1,) is the index's layout."""
    first, last = starts[papers], starts[papers + 1]
    counts = last - first
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    rows = np.arange(counts.sum()) + np.repeat(first - begins, counts)
    return Candidates(rows, begins)


def best_per_paper(similarities: Floats, starts: Ints) -> Floats:
    """Each query sentence's best similarity within each paper: (queries, sentences) -> (queries, papers)."""
    best: Floats = np.maximum.reduceat(similarities, starts, axis=1)
    return best


def restrict(similarities: Floats, starts: Ints, keep: NDArray[np.bool_]) -> Floats:
    """Similarities with the sentences not kept at minus infinity; a paper that would keep none keeps all."""
    counts = np.diff(np.append(starts, len(keep)))
    any_kept = np.repeat(np.logical_or.reduceat(keep, starts), counts)
    restricted: Floats = np.where(keep | ~any_kept, similarities, -np.inf).astype(np.float32)
    return restricted


def mean_max(best: Floats) -> Floats:
    """The mean over query sentences of each one's best match (queries, papers) -> (papers,).

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.
    """
    mean: Floats = best.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def single_max(best: Floats) -> Floats:
    """The best match of any query sentence: ASPIRE's single match (Mysore et al., 2022, section 3.2)."""
    maximum: Floats = best.max(axis=0)
    return maximum


MATCHES: Mapping[str, Callable[[Floats], Floats]] = {"mean-max": mean_max, "single-match": single_max}
