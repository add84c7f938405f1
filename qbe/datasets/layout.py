"""How the embedded sample's judgements follow from its layout.

Every paper of the sample has a place under each facet: a family (what it is about, roughly) and a
variant of that family. Families are related in pairs. Nothing else decides a grade or a pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from qbe.query import Topic
from qbe.trec import Judgment
from qbe.types import Facet

FACTORS: Mapping[Facet, str] = {
    Facet.BACKGROUND: "problem",
    Facet.METHOD: "method",
    Facet.RESULT: "finding",
}
"""The layout's name for what a facet speaks about."""


class Place(NamedTuple):
    """Where a paper stands under one facet."""

    family: str
    variant: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all papers, and the pairs of related families, by facet."""

    places: Mapping[str, Mapping[Facet, Place]]
    related: Mapping[Facet, frozenset[frozenset[str]]]


def read_layout(path: Path) -> Layout:
    """Read the sample's ``layout.json``.

    Raises OSError, ValueError or KeyError when it is absent or not a layout: it ships with the
    package, so that this is a broken installation and no user's mistake.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    places = {
        paper_id: {
            facet: Place(entry[factor], entry[f"{factor}_variant"]) for facet, factor in FACTORS.items()
        }
        for paper_id, entry in content["papers"].items()
    }
    related = {
        facet: frozenset(frozenset(pair) for pair in content["related"][factor])
        for facet, factor in FACTORS.items()
    }
    return Layout(places, related)


def grade(layout: Layout, query: str, candidate: str, facet: Facet) -> int:
    """How relevant a candidate is to a query paper under a facet.

    3: the same variant; 2: another variant of the same family; 1: a related family; 0: anything
    else. Symmetric; the other facets have no part in it. Raises KeyError for an unknown paper.
    """
    wanted, found = layout.places[query][facet], layout.places[candidate][facet]
    if wanted.family == found.family:
        return 3 if wanted.variant == found.variant else 2
    return int(frozenset((wanted.family, found.family)) in layout.related[facet])


def pool(layout: Layout, query: str, facet: Facet) -> list[str]:
    """The papers judged for a query, by ascending id, without the query paper itself.

    All papers of a grade above 0, and as hard negatives all those of the query's own variant under
    another facet. Every paper outside the pool has grade 0 too.
    """

    def belongs(candidate: str) -> bool:
        return candidate != query and (
            grade(layout, query, candidate, facet) > 0
            or any(grade(layout, query, candidate, other) == 3 for other in Facet)
        )

    return sorted(filter(belongs, layout.places))


def pools(layout: Layout, topics: Iterable[Topic]) -> dict[str, list[str]]:
    """The pool of each topic, by query id, in the order of the topics."""
    return {topic.query_id: pool(layout, topic.paper_id, _facet(topic)) for topic in topics}


def judgments(layout: Layout, topics: Iterable[Topic]) -> list[Judgment]:
    """The grade of every pool member, in the order of topics and pools."""
    return [
        Judgment(topic.query_id, paper_id, grade(layout, topic.paper_id, paper_id, _facet(topic)))
        for topic in topics
        for paper_id in pool(layout, topic.paper_id, _facet(topic))
    ]


def _facet(topic: Topic) -> Facet:
    """The facet that each topic of the sample has; raises ValueError for another topic's."""
    if topic.facet is None:
        raise ValueError(f"expected a topic with a facet, found {topic.query_id}")
    return topic.facet
