"""DBLP, PubMed and Open Research as Citeomatic splits them (Bhagavatula et al., 2018).

The files are those that ``get-data.sh`` of github.com/allenai/citeomatic fetches. ``corpus.json`` of DBLP and
PubMed has a line for each paper with an abstract: ``id``, ``title_raw`` and ``abstract_raw`` (``title`` and
``abstract`` are their lower-case tokens), ``authors`` (names), ``venue``, ``year``, ``out_citations`` (ids).
Open Research is Semantic Scholar's Open Corpus of February 2017: ``id``, ``title``, ``paperAbstract``,
``authors`` (objects with ``name``), ``venue``, ``year``, ``outCitations``.

What is relevant, and to which queries, is told by Citeomatic's ``corpus.py`` and ``training.py``, and by the
scripts in Anserini's folder ``openresearch``, which made the collections of Nogueira et al. (2020). Papers
without a year are left out, and so are citations of the paper itself, of other collections' papers and of
younger ones. DBLP and PubMed are split at fixed years; only papers of train are candidates there, and a query
has at least ten citations of them. Open Research is 80, 10 and 10 of a hundred papers in the order of their
years, and a query has at least one citation. There is no upper limit. Papers of Open Research without an
abstract are kept: their titles stand for it.

The 20,000 queries of its dev and test are not those of the published figures, which were drawn at random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import fields, parse_paper
from qbe.corpus.jsonarray import json_lines
from qbe.corpus.markup import plain
from qbe.corpus.reading import converted
from qbe.corpus.rejected import RejectedRecords
from qbe.corpus.streams import display_name, open_source
from qbe.corpus.titles import TitleIndex
from qbe.datasets.citation_statistics import summary
from qbe.datasets.citing import Rules, listing, note, unsplit, write_collection, years_of
from qbe.datasets.timesplit import SPLITS, TRAIN, Assigned, by_last_years, by_share
from qbe.errors import DatasetError, RecordError
from qbe.types import Paper

FOLDER = "citeomatic"
MAX_REJECTED = 0.01
FIRST_YEAR = 1966
"""Of DBLP and PubMed; what is older is left out."""


class Published(NamedTuple):
    """A collection.

    Attributes:
        files: where its file is below the folder of the release; the first that exists is read.
        where: where it can be obtained.
        last_years: the last years of train, dev and test; none: they are shares of the papers.
        rules: which papers are queries, and what is relevant to them.
        title_alone: whether papers without an abstract are kept.
    """

    files: tuple[str, ...]
    where: str
    last_years: tuple[int, ...]
    rules: Rules
    title_alone: bool


_GET_DATA = "get-data.sh of https://github.com/allenai/citeomatic"

PUBLISHED: Mapping[str, Published] = {
    "dblp": Published(
        ("comparison/dblp/corpus.json", "corpus.json"),
        _GET_DATA,
        (2007, 2008, 2011),
        Rules(min_citations=10, of_train=True),
        title_alone=False,
    ),
    "pubmed": Published(
        ("comparison/pubmed/corpus.json", "corpus.json"),
        _GET_DATA,
        (2008, 2009, 2013),
        Rules(min_citations=10, of_train=True),
        title_alone=False,
    ),
    "open-research": Published(
        tuple(
            f"{folder}papers-2017-02-21.json{suffix}"
            for folder in ("open_corpus/", "")
            for suffix in (".gz", "")
        ),
        "the Open Corpus of Semantic Scholar, release 2017-02-21 (papers-2017-02-21.zip)",
        (),
        Rules(most_queries=20_000),
        title_alone=True,
    ),
}
"""The collections by name."""


def write(
    name: str,
    source: Path | None,
    output: Path,
    leave_out: TitleIndex,
    report: Callable[[str], None],
) -> list[str]:
    """Write a collection to a folder; return lines that summarize what was written.

    Args:
        name: a key of PUBLISHED.
        source: its file, or the folder of the release; by default ``$QBE_DATA/citeomatic``.
        output: the folder, to which records that cannot be used are listed as well.
        leave_out: papers with these titles are no queries.
        report: called with one line before each reading of the file.

    Raises DatasetError where the file is absent, more than MAX_REJECTED of its records cannot be used, or a
    split has no query; CorpusError where it cannot be read; OutputError.
    """
    collection = PUBLISHED[name]
    path = _find(name, source)
    output.mkdir(parents=True, exist_ok=True)
    report(f"reading {path} for years")
    with listing(output) as left_out:
        years, without_year = years_of(read_papers(path, collection.title_alone, left_out))
    _check(path, name, len(years) + without_year, left_out)
    splits = _splits(collection, years)
    report(f"reading {path} for texts and citations")
    dropped = write_collection(
        output,
        lambda: read_papers(path, collection.title_alone, RejectedRecords()),
        {paper_id: years[paper_id] for paper_id in splits},
        splits,
        names=SPLITS,
        leave_out=leave_out,
        rules=collection.rules,
    )
    notes = [*_notes(collection, years, splits), *note(output, left_out)]
    return summary(name, output, str(path), without_year, dropped, notes)


def _check(path: Path, name: str, papers: int, left_out: RejectedRecords) -> None:
    """Raise DatasetError for a file without papers, or with many records that are none."""
    if not papers or left_out.broken > MAX_REJECTED * (papers + left_out.broken):
        raise DatasetError(
            f"{path}: expected the papers of {name}, found {left_out.broken:,} records that are none beside "
            f"{papers:,} papers ({left_out.reasons() or 'an empty file'}); take the file of the release"
        )


def _splits(collection: Published, years: Mapping[str, int]) -> Assigned:
    if not collection.last_years:
        return by_share(years)
    return by_last_years(years, collection.last_years, FIRST_YEAR)


def _notes(collection: Published, years: Mapping[str, int], splits: Assigned) -> Iterator[str]:
    if len(splits) < len(years):
        period = f"{FIRST_YEAR} to {collection.last_years[-1]}"
        yield f"  {len(years) - len(splits):,} papers of other years than {period}, left out"
    if collection.rules.of_train:
        of_train = sum(split == TRAIN for split in splits.values())
        last = collection.last_years[0]
        yield f"  relevant are the {of_train:,} papers of train alone: search with --before {last}"


def read_papers(path: Path, title_alone: bool, left_out: RejectedRecords) -> Iterator[Paper]:
    """The papers of a file, with the ids of all that they cite as ``metadata.cites``.

    Without an abstract a paper has its title in its place where ``title_alone``. Other records that cannot be
    used, and those of an id that was there before, are counted in ``left_out``.

    >>> _ = Path("papers.json").write_text(
    ...     '{"id": "a", "title": "On stone", "paperAbstract": "One.", "year": 2016, "outCitations": ["b"]}'
    ... )
    >>> [paper.metadata for paper in read_papers(Path("papers.json"), True, RejectedRecords())]
    [{'year': 2016, 'cites': ['b']}]
    """
    seen: set[str] = set()
    with open_source(path) as stream:
        for where, record in converted(json_lines(stream, display_name(path)), to_record):
            try:
                if isinstance(record, RecordError):
                    raise record
                abstract = record["abstract"] or (record["title"] if title_alone else "")
                paper = parse_paper({**record, "abstract": abstract}, where, unsplit)
                if paper.paper_id in seen:
                    raise RecordError(
                        f"{where}: expected each id once, found {paper.paper_id!r} again; drop one of them",
                        "an id that occurs twice",
                    )
            except RecordError as error:
                left_out.skip(where, error)
                continue
            seen.add(paper.paper_id)
            yield paper


def to_record(paper: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a paper in either layout; raises RecordError for other types than those of its schema.

    >>> record = {"id": "7", "title": "on stone", "title_raw": "On Stone", "abstract": "one .", "year": 2008}
    >>> to_record(record | {"abstract_raw": "One.", "out_citations": ["3"]}, "corpus.json, line 1")
    {'paper_id': '7', 'title': 'On Stone', 'abstract': 'One.', 'metadata': {'year': 2008, 'cites': ['3']}}
    """
    named = fields.Fields(paper, where)
    metadata = {
        "authors": [name for name in map(plain, _authors(paper, where)) if name],
        "year": fields.year(paper.get("year")),
        "venue": plain(named.text("venue")),
        "cites": named.texts("out_citations[]") or named.texts("outCitations[]"),
    }
    return {
        "paper_id": paper.get("id"),
        "title": named.text("title_raw", "title"),
        "abstract": named.text("abstract_raw", "abstract", "paperAbstract"),
        "metadata": fields.present(metadata),
    }


def _authors(paper: Mapping[str, Any], where: str) -> Iterator[str]:
    authors = paper.get("authors")
    if not isinstance(authors, list | None):
        raise fields.wrong_type(where, "authors", "a list", authors)
    for author in authors or ():
        if isinstance(author, str):
            yield author
        elif isinstance(author, Mapping):
            yield fields.Fields(author, where).text("name")
        elif author is not None:
            raise fields.wrong_type(where, "authors", "names, or objects with a name", author)


def _find(name: str, source: Path | None) -> Path:
    collection = PUBLISHED[name]
    data = os.environ.get("QBE_DATA")
    folder = source if source is not None else Path(data, FOLDER) if data else None
    if folder is not None:
        for path in (folder, *(folder / file for file in collection.files)):
            if path.is_file():
                return path
    actual = f"none in {folder}" if folder is not None else "neither"
    raise DatasetError(
        f"expected {name}'s file {collection.files[0]} in `source` or in $QBE_DATA/{FOLDER}, found {actual}; "
        f"get it from {collection.where}"
    )
