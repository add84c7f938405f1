"""Which sentences of its paper a query is about."""

from __future__ import annotations

from qbe.errors import FacetNotFoundError, UsageError
from qbe.query import Query
from qbe.types import Facet, Paper


def selected_positions(query: Query) -> tuple[int, ...]:
    """Positions of the query's sentences: those picked, those of the facet, or all.

    Where a tagger found no sentence of the facet, the likeliest stands in for it (see `is_guess`).

    Raises UsageError for a facet together with positions and for positions out of range,
    FacetNotFoundError where no sentence carries the facet.
    """
    paper = query.paper
    if query.positions is not None:
        if query.facet is not None:
            raise UsageError("expected a facet or sentence positions, found both; give one of them")
        return _checked(paper, query.positions)
    if query.facet is None:
        return paper.positions(None)
    positions, _ = paper.facet_positions(query.facet)
    if not positions:
        raise FacetNotFoundError(_missing(paper, query.facet))
    return positions


def is_guess(query: Query) -> bool:
    """Whether no sentence of the query's paper has its facet, so that the likeliest stands in."""
    return query.facet is not None and query.paper.facet_positions(query.facet)[1]


def _checked(paper: Paper, positions: tuple[int, ...]) -> tuple[int, ...]:
    count = len(paper.sentences)
    outside = [position for position in positions if not 0 <= position < count]
    if outside or not positions:
        found = ", ".join(map(str, outside)) or "none"
        raise UsageError(
            f"expected sentence positions from 0 to {count - 1} (paper {paper.paper_id} has {count} "
            f"sentences), found {found}"
        )
    return tuple(dict.fromkeys(positions))


def _missing(paper: Paper, facet: Facet) -> str:
    if not paper.labelled:
        return (
            f"expected paper {paper.paper_id} to have sentences labelled {facet}, found no facet labels; "
            "have them predicted (`Index.label_facets`), search with its whole abstract (no facet), or pick "
            "sentences by position"
        )
    present = [str(other) for other in Facet if paper.positions(other)]
    return (
        f"expected paper {paper.paper_id} to have sentences labelled {facet}, found only "
        f"{', '.join(present) or 'other'}; choose another facet, or pick sentences by position"
    )
