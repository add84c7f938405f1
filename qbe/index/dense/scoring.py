"""Scores of papers from similarities of sentences: pure functions on arrays.

In all of them ``starts`` (papers,) says where the sentences of each paper begin, as in
`qbe.index.dense.contracts.SentenceBlock`; every paper has at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def best_per_paper(similarities: Floats, starts: Ints) -> Floats:
    """Each query sentence's best similarity within each paper: (queries, sentences) -> (queries, papers).

    >>> best_per_paper(np.array([[0.1, 0.9, 0.5]], np.float32), np.array([0, 2])).tolist()
    [[0.8999999761581421, 0.5]]
    """
    best: Floats = np.maximum.reduceat(similarities, starts, axis=1)
    return best


def restrict(similarities: Floats, starts: Ints, keep: NDArray[np.bool_]) -> Floats:
    """Similarities (queries, sentences) with minus infinity where ``keep`` (sentences,) is false; a paper of
    which no sentence would be kept keeps all.

    >>> keep = np.array([True, False, False])
    >>> restrict(np.array([[0.25, 0.75, 0.5]], np.float32), np.array([0, 2]), keep).tolist()
    [[0.25, -inf, 0.5]]
    """
    restricted: Floats = np.where(kept_or_all(keep, starts), similarities, -np.inf).astype(np.float32)
    return restricted


def kept_or_all(keep: NDArray[np.bool_], starts: Ints) -> NDArray[np.bool_]:
    """A mask (sentences,) of sentences; all those of a paper of which none is kept.

    >>> kept_or_all(np.array([True, False, False]), np.array([0, 2])).tolist()
    [True, False, True]
    """
    counts = np.diff(np.append(starts, len(keep)))
    any_kept = np.repeat(np.logical_or.reduceat(keep, starts), counts)
    kept: NDArray[np.bool_] = keep | ~any_kept
    return kept


def mean_max(best: Floats) -> Floats:
    """The mean over query sentences of each one's best match (queries, papers) -> (papers,).

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.

    >>> mean_max(np.array([[0.5, 1.0], [0.25, 0.0]], np.float32)).tolist()
    [0.375, 0.5]
    """
    mean: Floats = best.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def single_match(best: Floats) -> Floats:
    """The best match of any query sentence (queries, papers) -> (papers,): ASPIRE's single match (Mysore et
    al., 2022, section 3.2).

    >>> single_match(np.array([[0.5, 1.0], [0.25, 0.0]], np.float32)).tolist()
    [0.5, 1.0]
    """
    maximum: Floats = best.max(axis=0)
    return maximum


MATCHES: Mapping[str, Callable[[Floats], Floats]] = {"mean-max": mean_max, "single-match": single_match}
"""How a paper's score is made of the best match of each query sentence, by name."""
