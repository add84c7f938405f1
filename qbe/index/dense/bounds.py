"""Which papers can be among the best, by the similarities of the nearest sentences alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.rows import Rows

Floats = NDArray[np.float32]

Match = Callable[[Floats], Floats]
"""How papers are scored: (queries, papers), the best similarity of each query sentence within each paper, to
(papers,). A score never falls where a similarity grows (`qbe.index.dense.scoring.MATCHES`)."""

TOLERANCE = 1e-3
"""By how much FAISS's similarities of unit vectors may differ from exact ones: numbers that were stored in
bytes are rounded to half precision (2 ** -11 of their size), sums to single precision."""


class MayBeBest(NamedTuple):
    """``rows`` (papers,) int64, ascending, of papers that can be among the best; whether they ``are_all``, or
    papers of which no sentence was looked up can be, too.
    """

    rows: Rows
    are_all: bool


def may_be_best(similarities: Floats, papers: Rows, total: int, k: int, match: Match) -> MayBeBest:
    """The papers that can be among the best ``k``, out of those that have one of the nearest sentences.

    ``similarities`` (queries, count) are those of each query sentence's nearest sentences, best first, up to
    TOLERANCE, and ``papers`` (queries, count) int64 the rows of their papers, of which there are ``total``.
    Where none of a paper's sentences is among the nearest of a query sentence, its best similarity there lies
    between -1 and that of the last one. A paper whose score can be no better than ``k`` others' scores are
    at least is left out (the threshold algorithm of Fagin et al., 2001, with one round).

    >>> from qbe.index.dense.scoring import mean_max
    >>> similarities = np.array([[0.9, 0.5, 0.3], [0.8, 0.7, 0.3]], np.float32)
    >>> papers = np.array([[4, 1, 4], [4, 1, 0]])
    >>> may_be_best(similarities, papers, 6, 1, mean_max)
    MayBeBest(rows=array([4]), are_all=True)
    >>> may_be_best(similarities, papers, 6, 3, mean_max)
    MayBeBest(rows=array([0, 1, 4]), are_all=False)
    """
    best = np.full((len(papers), total), -np.inf, np.float32)
    places = papers + total * np.arange(len(papers))[:, None]
    np.maximum.at(best.reshape(-1), places.reshape(-1), similarities.reshape(-1))
    rows = np.flatnonzero(best.max(axis=0) > -np.inf)
    best, farthest = best[:, rows], similarities[:, -1:]
    if len(rows) < k:
        return MayBeBest(rows, are_all=False)
    least, most = match(np.maximum(best, -1)), match(np.maximum(best, farthest))
    enough = np.partition(least, len(rows) - k)[len(rows) - k] - 2 * TOLERANCE
    return MayBeBest(rows[most >= enough], bool(match(farthest)[0] < enough))
