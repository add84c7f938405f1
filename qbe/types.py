"""The words of the domain: papers, facets, queries, hits, runs.

Standard library only, so that every other module may import it at no cost.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Facet(enum.Enum):
    """An aspect of a paper, as CSFCube defines them (Mysore et al., 2021, section 3.1)."""

    BACKGROUND = "background"
    METHOD = "method"
    RESULT = "result"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def from_label(cls, label: str) -> Facet | None:
        """The facet of a sentence label, with or without the release's ``_label`` suffix.

        ``objective`` folds into BACKGROUND, as in CSFCube; ``other`` is no facet (None).
        Raises KeyError for a label outside the five.
        """
        return _FACET_OF_LABEL[label.removesuffix("_label")]


_FACET_OF_LABEL: Mapping[str, Facet | None] = {
    "background": Facet.BACKGROUND,
    "objective": Facet.BACKGROUND,
    "method": Facet.METHOD,
    "result": Facet.RESULT,
    "other": None,
}


class Sentence(NamedTuple):
    """One sentence of an abstract and its facet (None: no label, or labelled ``other``)."""

    text: str
    facet: Facet | None = None


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its id, title, and abstract as sentences.

    ``labelled`` tells a paper whose sentences carry facets from one that was never tagged.
    """

    paper_id: str
    title: str
    sentences: tuple[Sentence, ...]
    labelled: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def abstract(self) -> str:
        """The sentences joined with single spaces."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def year(self) -> str:
        """The year of publication as the corpus gives it (``year``, else the start of ``date``), or ''."""
        year = self.metadata.get("year") or str(self.metadata.get("date") or "")[:4]
        return str(year)

    def positions(self, facet: Facet | None) -> tuple[int, ...]:
        """Positions (from 0) of the sentences of a facet; of all sentences when it is None."""
        return tuple(
            i for i, sentence in enumerate(self.sentences) if facet is None or sentence.facet is facet
        )


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
    """One line of a topics file: which paper to query with, and for which facet."""

    query_id: str
    paper_id: str
    facet: Facet


class Match(NamedTuple):
    """A query sentence, the candidate's sentence closest to it (positions from 0), and their similarity."""

    query_position: int
    position: int
    score: float


class Hit(NamedTuple):
    """One ranked paper. ``matches`` is empty where a searcher knows no sentences (bm25)."""

    docid: str
    score: float
    matches: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Ranked lists by query id, best first, under one run tag."""

    tag: str
    rankings: Mapping[str, tuple[Hit, ...]]
