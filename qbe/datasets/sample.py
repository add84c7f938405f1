"""The sample in the package: a small invented collection for tests and demonstrations.

Its judgements follow from its layout (``layout.json``): under each facet every paper belongs to a variant of
a family, and families are related in pairs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from qbe.corpus.records import dump_record
from qbe.datasets.releases import DatasetOptions, Report, raw_record
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
    """Copy the sample's files to a folder; return their names. With ``raw`` each abstract is one string."""
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


def write(options: DatasetOptions, output: Path, report: Report) -> list[str]:
    """Write the sample to a folder; return a line that says so."""
    del report
    return [f"sample: {', '.join(copy_sample(output, raw=options.raw))}"]


FACTORS = {Facet.BACKGROUND: "problem", Facet.METHOD: "method", Facet.RESULT: "finding"}


class Place(NamedTuple):
    """The family and the variant of a paper under one facet."""

    family: str
    variant: str


@dataclass(frozen=True, slots=True)
class Layout:
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
