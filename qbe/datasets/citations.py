"""Who cites whom among papers on visualization, or in a corpus of one's own.

The first are the papers of vispubdata (Isenberg et al., 2017) of 1990 to 2020: ``papers.jsonl`` (qbe's JSON
lines, without cites), and for the splits ``train.qrels`` and ``dev.qrels``: citing paper, 0, cited paper, 1.

A corpus of one's own has any of the formats of `qbe.corpus` that say what a paper cites, by the ids of the
corpus (``metadata.cites``). Its papers that cite others of them are the queries.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qbe.corpus import read_corpus, read_jsonl
from qbe.corpus.jsonl import write_jsonl
from qbe.corpus.reading import Reading
from qbe.corpus.streams import display_name
from qbe.corpus.titles import TitleIndex
from qbe.datasets.citing import (
    DEV,
    LISTED,
    PAPERS,
    SPLITS,
    TRAIN,
    WHATEVER_HAS_TEXT,
    by_last_years,
    by_share,
    cited_before,
    listing,
    summarize,
    write_collection,
    years_of,
)
from qbe.datasets.records import unsplit
from qbe.datasets.releases import find_release
from qbe.errors import DatasetError
from qbe.runs import read_qrels
from qbe.types import Paper
from qbe.util.files import atomic_file

NAME = "citations"
FILES = (PAPERS, "train.qrels", "dev.qrels")
WHERE = f"https://github.com/pisenberg/vispubdata and make {PAPERS}, train.qrels and dev.qrels of it"


def write_release(source: Path | None, output: Path, leave_out: TitleIndex) -> list[str]:
    """Write the papers on visualization to a folder; return lines that summarize what was written.

    Raises CorpusError for a record that is no paper, FileFormatError for a file of judgements that is no
    qrels file, DatasetError for other grades than 1, for papers that are absent or have no year, for
    citations of younger papers and for a query in both splits, and what
    `qbe.datasets.citing.write_collection` raises.
    """
    folder = find_release(NAME, FILES, WHERE, source)

    def papers() -> Iterator[Paper]:
        return read_corpus([str(folder / PAPERS)], unsplit, Reading(keep_without_abstract=True))

    years, without_year = years_of(papers())
    train, dev = (_read_citations(folder / f"{name}.qrels", years) for name in (TRAIN, DEV))
    if twice := train.keys() & dev.keys():
        raise DatasetError(
            f"{folder / 'dev.qrels'}: expected other queries than in train.qrels, found {min(twice)} in "
            "both; take all files from one release"
        )
    cited = {**train, **dev}

    def citing_papers() -> Iterator[Paper]:
        for paper in papers():
            cites = list(cited.get(paper.paper_id, ()))
            yield replace(paper, metadata={**paper.metadata, "cites": cites})

    split_of = dict.fromkeys(train, TRAIN) | dict.fromkeys(dev, DEV)
    written = write_collection(
        output, citing_papers, years, split_of, names=(TRAIN, DEV), leave_out=leave_out
    )
    return summarize(NAME, written, output, str(folder), years, without_year)


def _read_citations(path: Path, years: Mapping[str, int]) -> dict[str, dict[str, int]]:
    pools = read_qrels(path)
    for query, pool in pools.items():
        for paper_id, grade in pool.items():
            absent = next((each for each in (query, paper_id) if each not in years), None)
            if absent is not None:
                problem = f"{absent}, which {PAPERS} lacks or has without a year"
            elif grade != 1:
                problem = f"the grade {grade} of {paper_id}"
            elif years[paper_id] > years[query]:
                problem = f"{paper_id}, which is younger"
            else:
                continue
            raise DatasetError(
                f"{path}: expected papers that {query} cites, none of them younger, each with the grade 1, "
                f"found {problem}; take all files from one release"
            )
    return pools


def write_own(corpus: str, split_years: Sequence[int], output: Path, leave_out: TitleIndex) -> list[str]:
    """Write a corpus with ``metadata.cites`` to a folder as a collection; return lines that summarize it.

    Its queries are the papers that cite others of it. Train are those to the first of ``split_years``, dev
    those to the second, test the younger ones; with one of them there is no test. Without any, train are the
    oldest 80 of a hundred, dev and test 10 each. Records that cannot be used are listed next to the papers.

    Raises CorpusError where the corpus cannot be read, DatasetError for a split without a query, OutputError.

    >>> _ = Path("mine.csv").write_text('''id,title,abstract,year,cites
    ... a,On stone,We cut it.,2017,
    ... b,On sand,We pour it.,2018,a
    ... c,On clay,We burn it.,2019,a;b
    ... ''')
    >>> for line in write_own("mine.csv", [2018], Path("mine"), TitleIndex([])):
    ...     print(line)
    citations: 3 candidates from mine.csv, 5.0 words on average
      train: 1 queries (2018), 1.0 citations on average
      dev: 1 queries (2019), 2.0 citations on average
    next: qbe index --corpus mine/papers.jsonl --output indexes/citations
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".read-", dir=output) as folder:
        # Years come before citations, these before splits: the papers are read again, but not their formats.
        once = Path(folder, PAPERS)
        with listing(output / LISTED) as left_out, atomic_file(once) as stream:
            write_jsonl(read_corpus([corpus], unsplit, WHATEVER_HAS_TEXT, left_out), stream)

        def papers() -> Iterator[Paper]:
            return read_jsonl(once)

        years, without_year = years_of(papers())
        queries = {
            paper.paper_id: years[paper.paper_id]
            for paper in papers()
            if paper.paper_id in years and cited_before(paper, years)
        }
        split_of = by_last_years(queries, [*split_years, math.inf]) if split_years else by_share(queries)
        names = SPLITS[: len(split_years) + 1] if split_years else SPLITS
        written = write_collection(output, papers, years, split_of, names=names, leave_out=leave_out)
    *lines, command = summarize(NAME, written, output, display_name(corpus), years, without_year)
    if left_out:
        lines.append(f"  {left_out.summary()}, listed in {output / LISTED}")
    return [*lines, command]
