"""The layout of the sample (`tests/data/sample`), from which its judgements follow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from qbe.types import Facet

FACTORS = {Facet.BACKGROUND: "problem", Facet.METHOD: "method", Facet.RESULT: "finding"}


SAMPLE = Path(__file__).parent.parent / "data" / "sample"


class Place(NamedTuple):
    """The family and the variant of a paper under one facet."""

    family: str
    variant: str


class Layout(NamedTuple):
    """The places of all papers, and the pairs of related families, by facet."""

    places: Mapping[str, Mapping[Facet, Place]]
    related: Mapping[Facet, frozenset[frozenset[str]]]


def read_layout(path: Path) -> Layout:
    """Read the sample's ``layout.json``."""
    content = json.loads(path.read_text(encoding="utf-8"))

    def place(entry: Mapping[str, str]) -> dict[Facet, Place]:
        return {facet: Place(entry[name], entry[f"{name}_variant"]) for facet, name in FACTORS.items()}

    places = {paper_id: place(entry) for paper_id, entry in content["papers"].items()}
    related = {facet: frozenset(map(frozenset, content["related"][name])) for facet, name in FACTORS.items()}
    return Layout(places, related)


def grade(layout: Layout, query: str, candidate: str, facet: Facet) -> int:
    """Grade a candidate for a query paper under a facet.

    3: the same variant; 2: another variant of the same family; 1: a related family; 0: anything else.
    """
    first, second = layout.places[query][facet], layout.places[candidate][facet]
    if first.family == second.family:
        return 3 if first.variant == second.variant else 2
    return int(frozenset((first.family, second.family)) in layout.related[facet])


def pool(layout: Layout, query: str, facet: Facet) -> list[str]:
    """Return the sorted ids of a query's pool.

    They are all papers of a grade above 0 and, as hard negatives, those of its variant under another facet.
    """
    others = (paper_id for paper_id in layout.places if paper_id != query)
    return sorted(
        each
        for each in others
        if grade(layout, query, each, facet) > 0 or any(grade(layout, query, each, f) == 3 for f in Facet)
    )
