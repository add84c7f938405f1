"""What is asked for: queries, and topics that name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from qbe.types import Facet, Paper


@dataclass(frozen=True, slots=True)
class Query:
    """A paper, seen through a facet, through hand-picked sentence positions, or as a whole.

    At most one of ``facet`` and ``positions`` is set; with neither the whole abstract is meant.
    """

    paper: Paper
    facet: Facet | None = None
    positions: tuple[int, ...] | None = None

    @property
    def query_id(self) -> str:
        """``{paper_id}_{facet}``, or the paper's id alone when no facet is asked for."""
        return f"{self.paper.paper_id}_{self.facet}" if self.facet else self.paper.paper_id


class Topic(NamedTuple):
    """One line of a topics file: which paper, for which facet (None: its whole abstract)."""

    query_id: str
    paper_id: str
    facet: Facet | None = None
