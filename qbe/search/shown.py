"""The pair of sentences that is shown for a hit, and what it says of the facet."""

from __future__ import annotations

from typing import NamedTuple

from qbe.query import Query
from qbe.search.explain import stands_in
from qbe.types import Facet, Hit, Match, Paper


class Shown(NamedTuple):
    """A pair of sentences, and the label of the paper's sentence (see `label_of`)."""

    match: Match
    label: str

    @property
    def carries_facet(self) -> bool:
        """Whether the sentence carries the facet, if only as a best guess, or none was searched for."""
        return not self.label.startswith("(")

    @property
    def prefix(self) -> str:
        """What stands before the sentence, such as "method: "."""
        if not self.label:
            return ""
        return f"{self.label}: " if self.carries_facet else f"{self.label} "


def shown(query: Query, paper: Paper, hit: Hit) -> Shown | None:
    """The best pair of a hit whose sentence carries the facet that its aspect searches for, else the best
    pair; None for a hit without matches.

    Best is the pair that contributed most to a reranker's score, then the closest. Pairs of aspects with a
    negative weight count only where there are no others.

    >>> query = Query(index.paper("s036"), Facet.METHOD)
    >>> matches = Match(2, 0, 0.75), Match(2, 2, 0.5)
    >>> shown(query, index.paper("s051"), Hit("s051", 1.5, matches))
    Shown(match=Match(query_position=2, position=2, score=0.5, aspect=0), label='method')
    >>> shown(query, index.paper("s051"), Hit("s051", 1.5, matches[:1])).label
    '(labelled background)'
    """
    pairs = [*([hit.driven_by] if hit.driven_by else []), *hit.matches]
    pairs = [pair for pair in pairs if query.aspects[pair.aspect].weight > 0] or pairs
    candidates = [
        Shown(pair, label_of(paper, pair.position, query.aspects[pair.aspect].facet)) for pair in pairs
    ]
    return next((each for each in candidates if each.carries_facet), candidates[0] if candidates else None)


def label_of(paper: Paper, position: int, facet: Facet | None) -> str:
    """What is said of a sentence that is shown for a facet: the facet, with a question mark where the
    sentence is a best guess, and in parentheses what it is labelled where that is not the facet.

    Where none is searched for it is the sentence's own facet, '' if it has none.

    >>> paper = index.paper("s036")
    >>> [label_of(paper, position, Facet.METHOD) for position in (1, 2)], label_of(paper, 1, None)
    (['(labelled background)', 'method'], 'background')
    """
    sentence_facet = paper.sentences[position].facet
    if facet is None or sentence_facet is facet:
        return str(sentence_facet or "")
    if stands_in(paper, position, facet):
        return f"{facet}?"
    return f"(labelled {sentence_facet or 'other'})" if paper.labelled else "(not labelled)"
