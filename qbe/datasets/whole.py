"""Collections of whole-abstract queries (Mysore et al., 2022, definition 1) as files of the other commands.

Their readers return papers, and judged pools by split. These become ``corpus.jsonl`` and, for each split,
``topics.{split}.tsv``, ``pools.{split}.tsv`` and ``{name}.{split}.qrels``. The id of a query is the id of its
paper. A query paper is left out of its own pool and judgements.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import read_records
from qbe.corpus.jsonl import dump_record
from qbe.datasets.judgments import Pools, as_judgments
from qbe.datasets.records import Papers, corpus_record, has_text, raw_record
from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.query import Topic
from qbe.topics import write_pools, write_topics
from qbe.trec import write_qrels


class Split(NamedTuple):
    """Some queries of a collection, with their judged pools."""

    name: str
    pools: Pools


class Collection(NamedTuple):
    """How a collection is read.

    Attributes:
        name: its name in `qbe.datasets.registry.DATASETS`.
        files: the files that are read, below the folder of the release.
        where: where the release can be obtained.
        read: takes the folder and returns papers and splits.
    """

    name: str
    files: Sequence[str]
    where: str
    read: Callable[[Path], tuple[Papers, list[Split]]]


class SplitCounts(NamedTuple):
    """Numbers of a split that was written.

    Attributes:
        name: of the split.
        queries: number of queries.
        judgments: number of judgements.
        without_text: number of judgements of papers without text; they are in the qrels, for a scorer to
            count, but in no pool.
        dropped: ids of queries without text, which are left out.
        in_own_pool: ids of queries whose paper was in its own pool and was left out there.
    """

    name: str
    queries: int
    judgments: int
    without_text: int
    dropped: tuple[str, ...]
    in_own_pool: tuple[str, ...]


def find_source(collection: Collection, source: Path | None) -> Path:
    """Return the folder of a release: ``source`` if given, else ``$QBE_DATA/NAME``.

    Raises DatasetError, which says where to get the release, when there is no such folder or a file is
    missing in it.

    >>> Path("papers.jsonl").touch()
    >>> find_source(Collection("mine", ["papers.jsonl"], "https://example.org", read=None), Path())
    PosixPath('.')
    """
    name, where = collection.name, collection.where
    data = os.environ.get("QBE_DATA")
    if source is None and data:
        source = Path(data, name)
    if source is None or not source.is_dir():
        actual = f"no folder {source}" if source else "neither"
        raise DatasetError(
            f"expected {name}'s release in `source` or in $QBE_DATA/{name}, found {actual}; get it "
            f"from {where}"
        )
    absent = [file for file in collection.files if not (source / file).is_file()]
    if absent:
        raise DatasetError(
            f"{source}: expected the files of {name}'s release, found no {', '.join(absent)}; get them "
            f"from {where}"
        )
    return source


def convert(
    name: str, papers: Papers, splits: Sequence[Split], output: Path, *, raw: bool = False
) -> list[SplitCounts]:
    """Write a collection to a folder, each file atomically; the same release gives the same bytes.

    With ``raw`` each abstract of the corpus is one string. Raises OutputError, and DatasetError for a split
    without a query.

    >>> from qbe.datasets.records import read_papers
    >>> _ = Path("papers.jsonl").write_text('''{"paper_id": "a", "title": "On stone", "abstract": null}
    ... {"paper_id": "b", "title": "On sand", "abstract": null}''')
    >>> convert("mine", read_papers(Path("papers.jsonl")), [Split("test", {"a": {"a": 1, "b": 1}})], Path())
    [SplitCounts(name='test', queries=1, judgments=1, without_text=0, dropped=(), in_own_pool=('a',))]
    """
    searchable = [_searchable(split, papers.ids) for split in splits]
    for (_, pools), counts in searchable:
        if not pools:
            raise DatasetError(
                f"{papers.path.parent}: expected queries in {counts.name}, found none that has a text; take "
                "all files from one release"
            )
        for query in counts.in_own_pool:
            pools[query].pop(query, None)  # removed already where a query is in two splits
    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(papers.path):
            complete = corpus_record(record)
            if has_text(complete):
                stream.write(dump_record(raw_record(complete) if raw else complete))
    for (split, pools), _ in searchable:
        write_topics(output / f"topics.{split}.tsv", (Topic(query, query) for query in pools))
        indexed = {
            query: (paper_id for paper_id in pool if paper_id in papers.ids) for query, pool in pools.items()
        }
        write_pools(output / f"pools.{split}.tsv", indexed)
        write_qrels(output / f"{name}.{split}.qrels", as_judgments(pools))
    return [counts for _, counts in searchable]


def _searchable(split: Split, ids: frozenset[str]) -> tuple[Split, SplitCounts]:
    """The queries of a split that have a text; their pools are not copied, a release may have millions."""
    pools = {query: pool for query, pool in split.pools.items() if query in ids}
    counts = SplitCounts(
        split.name,
        queries=len(pools),
        judgments=sum(len(pool) - (query in pool) for query, pool in pools.items()),
        without_text=sum(paper_id not in ids for pool in pools.values() for paper_id in pool),
        dropped=tuple(query for query in split.pools if query not in pools),
        in_own_pool=tuple(query for query, pool in pools.items() if query in pool),
    )
    return Split(split.name, pools), counts


def describe(name: str, papers: Papers, splits: Sequence[SplitCounts]) -> list[str]:
    """Summarize a collection that was written, as lines of text.

    >>> papers = Papers(Path("mine/papers.jsonl"), frozenset("ab"), 2, frozenset())
    >>> for line in describe("mine", papers, [SplitCounts("test", 1, 1, 0, (), ("a",))]):
    ...     print(line)
    mine: 2 papers (2 with a title only) from mine
      test: 1 queries, 1 judgements
        left out of its own pool: a
    """
    lines = [
        f"{name}: {len(papers.ids):,} papers ({papers.title_only:,} with a title only) from "
        f"{papers.path.parent}"
    ]
    if papers.without_text:
        lines.append(f"  papers without text, left out: {_some(sorted(papers.without_text))}")
    for split in splits:
        lines.append(f"  {split.name}: {split.queries:,} queries, {split.judgments:,} judgements")
        if split.without_text:
            lines.append(
                f"    {split.without_text:,} of them of papers without text: in the qrels, in no pool"
            )
        if split.dropped:
            lines.append(f"    queries without text, left out: {_some(split.dropped)}")
        if split.in_own_pool:
            lines.append(f"    left out of its own pool: {_some(split.in_own_pool)}")
    return lines


def _some(ids: Sequence[str]) -> str:
    """The first of many ids, and their number."""
    return ", ".join(ids[:5]) + (f", ... ({len(ids):,})" if len(ids) > 5 else "")
