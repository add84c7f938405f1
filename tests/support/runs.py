"""Runs written by hand."""

from collections.abc import Iterable, Mapping

from qbe.run import Run
from qbe.types import Hit


def hits(names: Iterable[str]) -> tuple[Hit, ...]:
    """Papers, best first."""
    return tuple(Hit(name, float(-place)) for place, name in enumerate(names))


def run(rankings: Mapping[str, Iterable[str]] | None = None, **others: Iterable[str]) -> Run:
    """A run of ``{"p_background": "abc"}`` and so on, best first."""
    return Run("by-hand", {query: hits(names) for query, names in {**(rankings or {}), **others}.items()})
