"""The measures of citation recommendation, of ranked rows: what `qbe evaluate --protocol citations` gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CUT = 20


class CitationFigures(NamedTuple):
    """F1 of the first 20, mean reciprocal rank, and recall of the candidates, each the mean over queries."""

    f1: float
    mrr: float
    recall: float


class RankedList(NamedTuple):
    """Which papers of a ranking are ``cited`` (papers,) bool, best first, of how many in ``total``."""

    cited: NDArray[np.bool_]
    total: int


def citation_figures(lists: Iterable[RankedList]) -> CitationFigures:
    """The means over queries.

    >>> citation_figures([RankedList(np.array([False, True]), 4)])  # P@20 1/20, R@20 1/4
    CitationFigures(f1=0.0833..., mrr=0.5, recall=0.25)
    """
    rows = []
    for cited, total in lists:
        hits = int(cited[:CUT].sum())
        first = int(cited.argmax()) + 1 if cited.any() else 0
        rows.append((2 * hits / (CUT + total), 1 / first if first else 0.0, cited.sum() / total))
    f1, mrr, recall = np.mean(rows, axis=0).tolist()
    return CitationFigures(f1, mrr, recall)
