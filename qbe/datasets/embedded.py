"""The sample in the package: a small collection, written for tests and demonstrations.

Its judgements follow from its layout (``layout.json``). Under each facet every paper belongs to a family (its
approximate subject) and to a variant of that family; families are related in pairs. Grades and pools depend
on nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from qbe.corpus.records import dump_record
from qbe.datasets.records import raw_record
from qbe.errors import DatasetError
from qbe.types import Facet
from qbe.util.files import StrPath, atomic_file

PAPERS = "papers.jsonl"

_FILES = {
    PAPERS: "corpus.jsonl",
    "topics.tsv": "topics.tsv",
    "pools.tsv": "pools.tsv",
    **{f"sample.{facet}.qrels": f"sample.{facet}.qrels" for facet in Facet},
    "folds.json": "folds.json",
}


def copy_sample(output: StrPath, *, raw: bool = False) -> list[str]:
    """Copy the sample's files to a folder, under the names of `qbe.datasets.csfcube`; return the names.

    With ``raw`` each abstract of the corpus is one string, without labels. Raises DatasetError when they
    are missing in the installation, OutputError when the folder cannot be written.

    >>> copy_sample("sample")
    ['corpus.jsonl', 'topics.tsv', 'pools.tsv', 'sample.background.qrels', 'sample.method.qrels',
    'sample.result.qrels', 'folds.json']
    """
    folder = resources.files("qbe.datasets").joinpath("sample")
    for name, target in _FILES.items():
        try:
            data = folder.joinpath(name).read_bytes()
        except OSError as error:
            raise DatasetError(
                f"expected {name} in the installed package, found none ({error.strerror}); install qbe again"
            ) from error
        if raw and name == PAPERS:
            data = b"".join(dump_record(raw_record(json.loads(line))) for line in data.splitlines())
        with atomic_file(Path(output, target)) as stream:
            stream.write(data)
    return list(_FILES.values())


FACTORS: Mapping[Facet, str] = {
    Facet.BACKGROUND: "problem",
    Facet.METHOD: "method",
    Facet.RESULT: "finding",
}
"""The names of the facets in the layout."""


class Place(NamedTuple):
    """The family and the variant of a paper under one facet."""

    family: str
    variant: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all papers, and the pairs of related families, by facet.

    >>> places = {name: {Facet.METHOD: Place("stone", way)} for name, way in (("a", "cut"), ("b", "split"))}
    >>> grade(Layout(places, {}), "a", "b", Facet.METHOD)
    2
    """

    places: Mapping[str, Mapping[Facet, Place]]
    related: Mapping[Facet, frozenset[frozenset[str]]]


def read_layout(path: Path) -> Layout:
    """Read the sample's ``layout.json``.

    Raises OSError, ValueError or KeyError when it is absent or not a layout. It is part of the package:
    these errors mean a broken installation.

    >>> layout = read_layout(Path(str(resources.files("qbe.datasets") / "sample" / "layout.json")))
    >>> layout.places["s036"][Facet.METHOD]
    Place(family='contrastive-learning', variant='augmented-views')
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
    """Return the relevance grade of a candidate for a query paper under a facet.

    3: the same variant; 2: another variant of the same family; 1: a related family; 0: anything else. The
    grade is symmetric and independent of other facets. Raises KeyError for an unknown paper id.

    >>> layout = read_layout(Path(str(resources.files("qbe.datasets") / "sample" / "layout.json")))
    >>> [grade(layout, "s036", other, Facet.METHOD) for other in ("s001", "s007", "s002", "s003")]
    [3, 2, 1, 0]
    """
    first, second = layout.places[query][facet], layout.places[candidate][facet]
    if first.family == second.family:
        return 3 if first.variant == second.variant else 2
    return int(frozenset((first.family, second.family)) in layout.related[facet])


def pool(layout: Layout, query: str, facet: Facet) -> list[str]:
    """Return the ids of the papers judged for a query in ascending order, without the query paper.

    These are all papers of a grade above 0 and, as hard negatives, all papers of the query paper's variant
    under another facet. Every paper outside the pool has grade 0 too.

    >>> layout = read_layout(Path(str(resources.files("qbe.datasets") / "sample" / "layout.json")))
    >>> pool(layout, "s036", Facet.METHOD)[:3]
    ['s001', 's002', 's006']
    """

    def belongs(candidate: str) -> bool:
        return candidate != query and (
            grade(layout, query, candidate, facet) > 0
            or any(grade(layout, query, candidate, other) == 3 for other in Facet)
        )

    return sorted(filter(belongs, layout.places))
