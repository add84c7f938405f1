"""Runs written by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence

from qbe import Hit, Run


def hits(names: Iterable[str]) -> tuple[Hit, ...]:
    """Papers, best first."""
    return tuple(Hit(name, float(-place)) for place, name in enumerate(names))


def run(rankings: Mapping[str, Iterable[str]] | None = None, **others: Iterable[str]) -> Run:
    """A run of ``{"p_background": "abc"}`` and so on, best first."""
    return Run("by-hand", {query: hits(names) for query, names in {**(rankings or {}), **others}.items()})


def folds_text(halves: Mapping[str, tuple[Sequence[str], Sequence[str]]], **changes: object) -> str:
    """A folds file of the queries of each facet in two halves, with other entries for some facets."""
    content = {
        facet: {"fold1_dev": second, "fold2_dev": first, "fold1_test": first, "fold2_test": second}
        for facet, (first, second) in halves.items()
    }
    return json.dumps({**content, **changes})
