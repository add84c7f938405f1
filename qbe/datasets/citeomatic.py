"""DBLP, PubMed and Open Research as Citeomatic splits them (Bhagavatula et al., 2018).

The files are those that ``get-data.sh`` of github.com/allenai/citeomatic fetches: JSON lines with ``id``,
``title_raw`` and ``abstract_raw`` (DBLP, PubMed) or ``title`` and ``paperAbstract`` (Open Research: Semantic
Scholar's Open Corpus of February 2017), ``authors``, ``venue``, ``year``, and ``out_citations`` or
``outCitations``. As in Citeomatic's code and Nogueira et al. (2020), papers without a year and citations of
younger ones are left out. DBLP and PubMed are split at fixed years; only papers of train are relevant, and a
query has at least ten citations. Open Research is 80, 10 and 10 of a hundred papers in the order of their
years; its 20,000 queries a split are not those of the published figures, which were drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qbe.corpus import parse_paper
from qbe.corpus.json_stream import json_objects
from qbe.corpus.records import RejectedRecords
from qbe.corpus.sentences import unsplit
from qbe.corpus.streams import display_name, open_source
from qbe.datasets import citations
from qbe.datasets.releases import DatasetOptions, Report, place_of
from qbe.errors import DatasetError, RecordError
from qbe.types import Paper

FIRST_YEAR = 1966  # of DBLP and PubMed
MOST_QUERIES = 20_000
LAST_YEARS = {"dblp": (2007, 2008, 2011), "pubmed": (2008, 2009, 2013)}  # of train, dev and test
COLLECTIONS = {  # their files below the release
    "dblp": "comparison/dblp/corpus.json",
    "pubmed": "comparison/pubmed/corpus.json",
    "open-research": "open_corpus/papers-2017-02-21.json.gz",
}


def write(name: str, options: DatasetOptions, output: Path, report: Report) -> list[str]:
    """Write a collection out of its file, or the folder of the release; return a summary."""
    path = _find(name, options)
    report(f"reading {path} twice, for years and for citations")
    last_years, listed = LAST_YEARS.get(name), output / citations.LISTED
    with citations.listing(listed) as left_out:
        years, without_year = citations.years_of(read_papers(path, left_out, by_title=last_years is None))
    if not years:
        raise DatasetError(
            f"{path}: expected the papers of {name}, found none ({left_out.reasons() or 'an empty file'}); "
            "take the file of the release"
        )
    split_of = citations.by_share(years)
    if last_years:
        old_enough = {paper_id: year for paper_id, year in years.items() if year >= FIRST_YEAR}
        split_of = citations.by_last_years(old_enough, last_years)
        years = {paper_id: years[paper_id] for paper_id in split_of}
    *lines, command = citations.write_collection(
        name,
        output,
        lambda: read_papers(path, RejectedRecords(), by_title=last_years is None),
        years,
        split_of,
        source=str(path),
        without_year=without_year,
        names=citations.SPLITS,
        leave_out=citations.titles_of(options),
        of_train=last_years is not None,
        min_citations=10 if last_years else 1,
        most_queries=None if last_years else MOST_QUERIES,
    )
    if last_years:
        lines.append(f"  only papers of train are relevant: search with --before {last_years[0]}")
    if left_out:
        lines.append(f"  {left_out.summary()}, listed in {listed}")
    return [*lines, command]


def read_papers(path: Path, left_out: RejectedRecords, *, by_title: bool) -> Iterator[Paper]:
    """Yield the papers of a file with ``metadata.cites``; ``by_title`` keeps those without an abstract."""
    seen: set[str] = set()
    with open_source(path) as stream:
        for where, record in json_objects(stream, display_name(path)):
            try:
                if isinstance(record, RecordError):
                    raise record
                paper = parse_paper(_record(record, by_title), where, unsplit)
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


def _record(paper: Mapping[str, Any], by_title: bool) -> dict[str, Any]:
    title = paper.get("title_raw") or paper.get("title")
    abstract = next(filter(None, map(paper.get, ("abstract_raw", "paperAbstract", "abstract"))), "")
    authors = [each.get("name") if isinstance(each, dict) else each for each in paper.get("authors") or ()]
    cites = paper.get("out_citations") or paper.get("outCitations")
    metadata = {"authors": list(filter(None, authors)), "cites": cites}
    metadata |= {name: paper.get(name) for name in ("year", "venue")}
    return {
        "paper_id": paper.get("id"),
        "title": title,
        "abstract": abstract or (title if by_title else ""),
        "metadata": {name: value for name, value in metadata.items() if value},
    }


def _find(name: str, options: DatasetOptions) -> Path:
    file = COLLECTIONS[name]
    folder = place_of("citeomatic", options.source) or Path("citeomatic")
    for path in (folder, folder / file, (folder / file).with_suffix(""), folder / Path(file).name):
        if path.is_file():
            return path
    raise DatasetError(
        f"expected {name}'s file {file} in `source` or in $QBE_DATA/citeomatic, found none in {folder}; take "
        "it from get-data.sh of https://github.com/allenai/citeomatic or, of open-research, from Semantic "
        "Scholar's Open Corpus of 2017-02-21"
    )
