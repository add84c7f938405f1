"""Collections of citation recommendation: a paper that cites others is a query, what it cites is relevant.

Their files are ``papers.jsonl``, and for each split ``topics.{split}.tsv`` (whole abstracts; the id of a
query is the id of its paper) and ``{split}.qrels``. What a paper of train cites is in its ``metadata.cites``;
papers of dev and test have none. Splits follow time: train is the past, dev what came then, test what came
last.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import read_corpus
from qbe.corpus.fields import year
from qbe.corpus.reading import SKIP, Reading
from qbe.corpus.record import OFFSETS, dump_record, paper_to_record
from qbe.corpus.rejected import SUFFIX, RejectedRecords
from qbe.corpus.titles import TitleIndex
from qbe.datasets.records import unsplit
from qbe.errors import CorpusError, DatasetError
from qbe.query import Topic
from qbe.runs import Judgment, write_qrels, write_topics
from qbe.types import Paper
from qbe.util.files import atomic_file

TRAIN, DEV, TEST = SPLITS = ("train", "dev", "test")

PAPERS = "papers.jsonl"
LISTED = f"{PAPERS}{SUFFIX}"

Read = Callable[[], Iterable[Paper]]
"""Reads the papers of a collection from the beginning, with all that they cite in ``metadata.cites``."""

Queries = Mapping[str, Mapping[str, tuple[str, ...]]]
"""What each query cites, by split and query."""

WHATEVER_HAS_TEXT = Reading(on_error=SKIP, max_rejected=1, keep_without_abstract=True)
"""A bibliography is read for what it has: other records are counted, titles stand for absent abstracts."""


class Written(NamedTuple):
    """What was written: the number of papers, the mean number of words (separated by white space) of title
    and abstract, the queries, and how many papers would be queries but for those to leave out.
    """

    papers: int
    words: float
    queries: Queries
    dropped: int


def by_share(years: Mapping[str, int]) -> dict[str, str]:
    """The split of each paper: train are the oldest 80 of a hundred; the others are dev and test, half each.
    Papers of one year keep their order, and may be in two splits.

    >>> by_share({"a": 2004, "b": 2001, "c": 2002, "d": 2002, "e": 2001})
    {'b': 'train', 'e': 'train', 'c': 'train', 'd': 'train', 'a': 'test'}
    """
    oldest_first = sorted(years, key=years.__getitem__)
    trained = int(0.8 * len(years))
    chosen = trained + (len(years) - trained) // 2
    return {
        paper_id: TRAIN if place < trained else DEV if place < chosen else TEST
        for place, paper_id in enumerate(oldest_first)
    }


def by_last_years(years: Mapping[str, int], last_years: Sequence[float]) -> dict[str, str]:
    """The split of each paper, where the splits, in the order of SPLITS, end with the ``last_years``; papers
    after all of them are in none.

    >>> by_last_years({"b": 2007, "c": 2008, "d": 2012}, [2007, 2008, 2011])
    {'b': 'train', 'c': 'dev'}
    """
    ends = list(zip(SPLITS, last_years, strict=False))
    splits = {paper_id: next((n for n, last in ends if of <= last), None) for paper_id, of in years.items()}
    return {paper_id: split for paper_id, split in splits.items() if split is not None}


def years_of(papers: Iterable[Paper]) -> tuple[dict[str, int], int]:
    """The years of papers by their ids, and the number of those without one, which have no place in time.

    >>> from qbe.types import Sentence
    >>> metadata = {"a": {"year": 2018}, "b": {"date": "2019-05"}, "c": {}}
    >>> years_of(Paper(name, "On stone", (Sentence("One."),), metadata=metadata[name]) for name in "abc")
    ({'a': 2018, 'b': 2019}, 1)
    """
    years, without = {}, 0
    for paper in papers:
        paper_year = year(paper.year)
        if paper_year is None:
            without += 1
        else:
            years[sys.intern(paper.paper_id)] = paper_year
    return years, without


def cited_before(paper: Paper, years: Mapping[str, int]) -> tuple[str, ...]:
    """What a paper cites of the papers that have ``years``: not itself, nothing younger, everything once.

    Raises CorpusError for cites that are no list of ids.

    >>> from qbe.types import Sentence
    >>> paper = Paper("a", "On stone", (Sentence("One."),), metadata={"cites": ["b", "b", "a", "c", "far"]})
    >>> cited_before(paper, {"a": 2018, "b": 2018, "c": 2019})
    ('b',)
    """
    cites = paper.metadata.get("cites") or ()
    if not isinstance(cites, list | tuple) or not all(isinstance(each, str | int) for each in cites):
        raise CorpusError(
            f"paper {paper.paper_id!r}: expected a list of paper ids as metadata.cites, found "
            f"{ascii(cites)[:60]}; mend the record"
        )
    return tuple(
        sys.intern(each)
        for each in dict.fromkeys(map(str, cites))
        if each != paper.paper_id and each in years and years[each] <= years[paper.paper_id]
    )


def titles_of(files: Iterable[Path]) -> TitleIndex:
    """The titles of the papers of some files, each in one of the formats of `qbe.corpus`.

    Raises CorpusError for a file that cannot be read or has no papers.

    >>> _ = Path("others.jsonl").write_text('{"paper_id": 1, "title": "On stone", "abstract": "One."}')
    >>> titles_of([Path("others.jsonl")]).holds("ON STONE.")
    True
    """
    return TitleIndex(
        paper.title for file in files for paper in read_corpus([str(file)], unsplit, WHATEVER_HAS_TEXT)
    )


@contextlib.contextmanager
def listing(listed: Path) -> Iterator[RejectedRecords]:
    """Counts of records that are left out, each of which is listed in a file, which is absent if there are
    none. Raises OutputError.

    >>> from qbe.errors import RecordError
    >>> with listing(Path("papers.jsonl.rejected.jsonl")) as left_out:
    ...     left_out.skip("a.csv, row 3", RecordError("a.csv, row 3: expected a title", "no title"))
    >>> left_out.summary()
    '1 record skipped (no title: 1)'
    """
    with atomic_file(listed) as lines:
        left_out = RejectedRecords(lines)
        yield left_out
    if not left_out:
        listed.unlink()


def write_collection(
    output: Path,
    read: Read,
    years: Mapping[str, int],
    splits: Mapping[str, str],
    *,
    names: Sequence[str],
    leave_out: TitleIndex,
) -> Written:
    r"""Write a collection to a folder, each file atomically.

    Args:
        output: the folder.
        read: reads the papers; those without a year are left out.
        years: their years by id.
        splits: of papers that may be queries, the split by id.
        names: the names of all splits.
        leave_out: papers with these titles are no queries, and their cites are left out.

    Raises DatasetError for a split without a query, CorpusError for cites that are no list of ids, and
    OutputError.

    >>> from qbe.types import Sentence
    >>> text = (Sentence("One."),)
    >>> papers = [
    ...     Paper("a", "On stone", text, metadata={"year": 2017}),
    ...     Paper("b", "On sand", text, metadata={"year": 2018, "cites": ["a"]}),
    ...     Paper("c", "On clay", text, metadata={"year": 2019, "cites": ["b", "a"]}),
    ... ]
    >>> splits = {"b": "train", "c": "dev"}
    >>> years, names = years_of(papers)[0], ("train", "dev")
    >>> write_collection(Path(), lambda: papers, years, splits, names=names, leave_out=TitleIndex([]))
    Written(papers=3, words=3.0, queries={'train': {'b': ('a',)}, 'dev': {'c': ('b', 'a')}}, dropped=0)
    >>> from qbe.corpus import read_jsonl
    >>> [paper.metadata for paper in read_jsonl("papers.jsonl", unsplit)]
    [{'year': 2017}, {'year': 2018, 'cites': ['a']}, {'year': 2019}]
    >>> Path("dev.qrels").read_text()
    'c 0 b 1\nc 0 a 1\n'
    """
    queries: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in names}
    papers = words = dropped = 0
    with atomic_file(output / PAPERS) as stream:
        for paper in read():
            if paper.paper_id not in years:
                continue
            papers += 1
            words += len(paper.title.split()) + len(paper.abstract.split())
            split = splits.get(paper.paper_id)
            cited = cited_before(paper, years) if split else ()
            if cited and leave_out.holds(paper.title):
                dropped += 1
                cited = ()
            in_record = cited if split == TRAIN else ()
            stream.write(dump_record(_record(paper, years[paper.paper_id], in_record)))
            if split and cited:
                queries[split][paper.paper_id] = cited
    _check(queries, dropped)
    for name, of_split in queries.items():
        write_topics(output / f"topics.{name}.tsv", (Topic(query, query) for query in of_split))
        judgments = (Judgment(query, each, 1) for query, cited in of_split.items() for each in cited)
        write_qrels(output / f"{name}.qrels", judgments)
    return Written(papers, words / max(1, papers), queries, dropped)


def summarize(
    name: str, written: Written, output: Path, source: str, years: Mapping[str, int], without_year: int
) -> list[str]:
    """What was written as lines of text: the numbers of Table 1 of Nogueira et al. (2020), and what was left
    out.
    """
    lines = [f"{name}: {written.papers:,} candidates from {source}, {written.words:.1f} words on average"]
    for split, queries in written.queries.items():
        first, last = (of(years[query] for query in queries) for of in (min, max))
        mean = sum(map(len, queries.values())) / len(queries)
        period = str(first) if first == last else f"{first} to {last}"
        lines.append(f"  {split}: {len(queries):,} queries ({period}), {mean:.1f} citations on average")
    if without_year:
        lines.append(f"  {without_year:,} papers without a year, left out")
    if written.dropped:
        lines.append(f"  {written.dropped:,} papers are no queries: papers to leave out have their titles")
    return [*lines, f"next: qbe index --corpus {output / PAPERS} --output indexes/{name}"]


def _record(paper: Paper, of_year: int, cites: tuple[str, ...]) -> dict[str, Any]:
    """The record of a paper; an abstract that came as one string, or as one sentence, is a string."""
    metadata: dict[str, Any] = {name: value for name, value in paper.metadata.items() if name != "cites"}
    metadata["year"] = of_year
    if cites:
        metadata["cites"] = list(cites)
    record = paper_to_record(paper)
    if len(paper.sentences) == 1 and not paper.labelled:
        record["abstract"] = paper.abstract
        record.pop(OFFSETS, None)
    return {**record, "metadata": metadata}


def _check(queries: Queries, dropped: int) -> None:
    """Raise DatasetError where there is no query, or none in one of the splits."""
    total = sum(map(len, queries.values()))
    if dropped and not total:
        raise DatasetError(
            f"expected queries, found that `leave_out` has the titles of all {dropped:,}; give another file"
        )
    if not total:
        raise DatasetError(
            "expected papers that cite other papers of the collection, none of them younger, found none; "
            "check the ids in metadata.cites"
        )
    empty = next((name for name, of_split in queries.items() if not of_split), None)
    if empty is not None:
        raise DatasetError(
            f"expected queries in each split, found none in {empty} (of {total:,} papers that cite others); "
            "take more papers, or other years"
        )
