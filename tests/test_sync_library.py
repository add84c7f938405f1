"""The life of a library: 500 entries exported three times, and an index made equal to each export."""

import csv
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbe.bibliography.writing import entries
from qbe.corpus import read_corpus
from qbe.index.building.build import build
from qbe.index.building.changes import sync_papers
from qbe.index.building.settings import BuildSettings
from qbe.index.opening import Index
from qbe.text.split import split_sentences

EDITED, RETAGGED, IDENTIFIED, REKEYED, DELETED, NEW = 20, 15, 10, 20, 30, 25


@dataclass(frozen=True)
class Item:
    """What a library holds of a paper; without a key where it is in a table, or its owner gave it none."""

    number: int
    key: str | None
    in_table: bool = False
    doi: str = ""
    tags: tuple[str, ...] = ("fish",)
    end: str = "They swim."

    @property
    def title(self) -> str:
        return f"On the fish of river number {self.number}"

    @property
    def abstract(self) -> str:
        return f"We count the fish of river {self.number}. {self.end}"


def item(number: int) -> Item:
    """The first 350 entries have keys, the next 50 have none, and 100 are in a table; so later ones."""
    place = number % 500
    return Item(number, f"author{number}" if place < 350 else None, in_table=place >= 400)


def export(folder: Path, library: Sequence[Item]) -> list[str]:
    """The files of an export, in the order of the library."""
    with (folder / "library.bib").open("w") as bib, (folder / "library.csv").open("w", newline="") as table:
        rows = csv.writer(table)
        rows.writerow(["Title", "Abstract", "Year", "Authors", "DOI", "Keywords"])
        for each in library:
            if each.in_table:
                keywords = "; ".join(each.tags)
                rows.writerow([each.title, each.abstract, 2019, "Ann Lee", each.doi, keywords])
                continue
            fields = {"title": each.title, "abstract": each.abstract, "year": "2019", "author": "Lee, Ann"}
            fields |= {"doi": each.doi} if each.doi else {}
            fields["keywords"] = ", ".join(each.tags)
            lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
            bib.write(f"@article{{{each.key or ''},\n{lines}}}\n\n")
    return [str(folder / "library.bib"), str(folder / "library.csv")]


def edited(library: Sequence[Item], chance: random.Random, year: int) -> list[Item]:
    """The library some months later, in another order."""
    rest = list(library)
    chance.shuffle(rest)
    keyed = [each for each in rest if each.key]
    rekeyed = [replace(each, key=f"new{year}{each.number}") for each in keyed[:REKEYED]]
    rest = [each for each in rest if each not in keyed[:REKEYED]][DELETED:]
    texts = [replace(each, end=f"In {year} they swam.") for each in rest[:EDITED]]
    rest = rest[EDITED:]
    tagged = [replace(each, tags=(*each.tags, f"Read {year}")) for each in rest[:RETAGGED]]
    rest = rest[RETAGGED:]
    bare = [each for each in rest if not each.doi][:IDENTIFIED]
    with_doi = [replace(each, doi=f"10.1000/{each.number}") for each in bare]
    rest = [each for each in rest if each not in bare]
    added = [item(number) for number in chance.sample(range(year * 1000, year * 1000 + 1000), NEW)]
    library = [*rekeyed, *texts, *tagged, *with_doi, *added, *rest]
    chance.shuffle(library)
    return library


def check(folder: Path, files: Sequence[str], library: Sequence[Item]) -> None:
    """The index holds what a build of the export would, and all that the library has."""
    read = {paper.paper_id: paper for paper in read_corpus(files, split_sentences)}
    with Index(folder) as index:
        held = {paper.paper_id: paper for paper in index}
        bibliography = "".join(entries(index))
    assert held == read
    assert len(held) == len(library)
    by_title = {paper.title: paper for paper in held.values()}
    for each in library:
        paper = by_title[each.title]
        assert paper.abstract == each.abstract
        assert paper.metadata["tags"] == list(each.tags)
        assert paper.metadata.get("doi", "") == each.doi
    keys = set(re.findall(r"^@\w+\{(.*),$", bibliography, re.MULTILINE))
    assert keys >= {each.key for each in library if each.key}


def test_an_index_follows_a_library(tmp_path):
    chance, folder = random.Random(7), tmp_path / "index"
    library = [item(number) for number in range(500)]
    files = export(tmp_path, library)
    build(folder, files, BuildSettings(dense=False))
    check(folder, files, library)
    for year in (2021, 2022, 2023):
        before = len(library)
        library = edited(library, chance, year)
        written = sync_papers(folder, export(tmp_path, library))
        assert (written.added, written.deleted) == (NEW, DELETED)
        assert written.replaced == EDITED + RETAGGED + IDENTIFIED + REKEYED
        assert written.unchanged == before - DELETED - written.replaced
        assert (written.left_out, written.kept) == ({}, ())
        check(folder, files, library)
    assert written.generation == 3
