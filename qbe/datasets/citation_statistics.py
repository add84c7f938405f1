"""Numbers of a collection of citation recommendation, as in Table 1 of Nogueira et al. (2020)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import read_jsonl
from qbe.corpus.fields import year
from qbe.datasets.citing import PAPERS, unsplit
from qbe.datasets.timesplit import SPLITS
from qbe.errors import DatasetError
from qbe.lines import read_fields


class SplitStatistics(NamedTuple):
    """Numbers of a split: its queries, their first and last year, and the mean of their citations."""

    name: str
    queries: int
    years: tuple[int, int]
    citations: float


class Statistics(NamedTuple):
    """Numbers of a collection.

    Attributes:
        candidates: number of papers.
        words: the mean number of words, separated by white space, of title and abstract.
        splits: numbers of each split.
    """

    candidates: int
    words: float
    splits: tuple[SplitStatistics, ...]


def statistics(folder: Path) -> Statistics:
    r"""The numbers of a collection in a folder, as `write_collection` writes it.

    Raises CorpusError and FileFormatError for files that are absent or of another form, DatasetError for
    queries whose papers are absent, or have no year.

    >>> _ = Path("papers.jsonl").write_text(
    ...     '{"paper_id": "a", "title": "On stone", "abstract": "We cut it.", "metadata": {"year": 2017}}\n'
    ...     '{"paper_id": "b", "title": "On sand", "abstract": "We pour it out.", "metadata": {"year": 2018}}'
    ... )
    >>> _ = Path("train.qrels").write_text("b 0 a 1")
    >>> statistics(Path())
    Statistics(candidates=2, words=5.5, splits=(SplitStatistics(name='train', queries=1, years=(2018, 2018),
    citations=1.0),))
    """
    counts = {
        name: Counter(fields[0] for _, fields in read_fields(folder / f"{name}.qrels", None))
        for name in SPLITS
        if (folder / f"{name}.qrels").exists()
    }
    years: dict[str, list[int]] = {name: [] for name in counts}
    papers = words = 0
    for paper in read_jsonl(folder / PAPERS, unsplit):
        papers += 1
        words += len(paper.title.split()) + len(paper.abstract.split())
        of_paper = year(paper.year)
        for name, queries in counts.items():
            if paper.paper_id in queries and of_paper is not None:
                years[name].append(of_paper)
    for name, queries in counts.items():
        if not queries or len(years[name]) < len(queries):
            raise DatasetError(
                f"{folder}: expected papers with years for the queries of {name}.qrels, found "
                f"{len(years[name]):,} of {len(queries):,}; take all files of one collection"
            )
    return Statistics(
        papers,
        words / max(1, papers),
        tuple(
            SplitStatistics(
                name, len(queries), (min(years[name]), max(years[name])), queries.total() / len(queries)
            )
            for name, queries in counts.items()
        ),
    )


def describe(name: str, numbers: Statistics, source: str) -> list[str]:
    """The numbers of a collection as lines of text.

    >>> splits = (SplitStatistics("train", 2420, (1990, 2018), 5.0888),)
    >>> for line in describe("citations", Statistics(3796, 187.26, splits), "data/citations"):
    ...     print(line)
    citations: 3,796 candidates from data/citations, 187.3 words on average
      train: 2,420 queries (1990 to 2018), 5.1 citations on average
    """
    lines = [f"{name}: {numbers.candidates:,} candidates from {source}, {numbers.words:.1f} words on average"]
    for split in numbers.splits:
        first, last = split.years
        period = str(first) if first == last else f"{first} to {last}"
        mean = f"{split.citations:.1f} citations on average"
        lines.append(f"  {split.name}: {split.queries:,} queries ({period}), {mean}")
    return lines


def summary(
    name: str, output: Path, source: str, without_year: int, dropped: int, notes: Sequence[str] = ()
) -> list[str]:
    """What was written, as lines of text: statistics, what was left out, and the command that indexes it."""
    lines = describe(name, statistics(output), source)
    if without_year:
        lines.append(f"  {without_year:,} papers without a year, left out")
    if dropped:
        lines.append(f"  {dropped:,} papers are no queries: papers to leave out have their titles")
    return [*lines, *notes, f"next: qbe index --corpus {output / PAPERS} --output indexes/{name}"]
