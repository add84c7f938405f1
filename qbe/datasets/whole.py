"""Collections of whole-abstract queries (Mysore et al., 2022, definition 1) as the other commands' files.

Their readers give records and judged pools by split; here these become ``corpus.jsonl`` and, for each split,
``topics.{split}.tsv``, ``pools.{split}.tsv`` and ``{name}.{split}.qrels``. A query's id is its paper's.

A paper without an abstract stands with its title as its only sentence: SciDocs' own scorer ranks such papers
by their titles. A query paper is left out of its own pool and judgements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import parse_paper, read_records
from qbe.corpus.jsonl import dump_record
from qbe.corpus.record import FIELDS
from qbe.datasets.judgments import Pools
from qbe.datasets.raw import raw_record
from qbe.errors import CorpusError, DatasetError
from qbe.files import atomic_file
from qbe.query import Topic
from qbe.trec import Judgment, write_pools, write_qrels, write_topics


@dataclass(frozen=True, slots=True)
class Papers:
    """The papers of a release's file: ids of those with a text, and how many of them have a title alone.

    ``without_text`` are ids of papers with neither abstract nor title: no index can hold them.
    """

    path: Path
    ids: frozenset[str]
    title_only: int
    without_text: frozenset[str]


class Split(NamedTuple):
    """Some queries of a collection, with their judged pools."""

    name: str
    pools: Pools


class SplitCounts(NamedTuple):
    """What became of a split.

    ``unsearchable`` judgements are of papers without a text: they are kept, for a scorer to count, but no
    pool names them. ``dropped`` are queries without a text, ``own_pool`` those whose paper stood in its
    own pool and was left out.
    """

    name: str
    queries: int
    judgments: int
    unsearchable: int
    dropped: tuple[str, ...]
    own_pool: tuple[str, ...]


def read_papers(path: Path) -> Papers:
    """Check every paper of a file of records (see `qbe.corpus`).

    Raises CorpusError for a record that `parse_paper` refuses, and for an id that comes twice.
    """
    ids: set[str] = set()
    without_text: set[str] = set()
    title_only = 0
    for where, record in read_records(path):
        kept = _kept(record)
        # Only qbe.index splits abstracts: here any split will do. A text stands in where there is none.
        paper_id = parse_paper(
            kept | (_STAND_IN if _blank(kept) else {}), where, lambda text: [text]
        ).paper_id
        if paper_id in ids:
            raise CorpusError(
                f"{where}: expected each paper_id once, found {paper_id!r} again; drop one of them"
            )
        ids.add(paper_id)
        if _blank(kept):
            without_text.add(paper_id)
        elif _empty(record.get("abstract")):
            title_only += 1
    return Papers(path, frozenset(ids - without_text), title_only, frozenset(without_text))


_STAND_IN = {"abstract": ["."]}


def _kept(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are read, in the form that qbe reads; the title stands in for an empty abstract."""
    kept = {field: record[field] for field in FIELDS if field in record}
    kept["title"] = "" if kept.get("title") is None else kept["title"]
    if _empty(kept.get("abstract")):
        kept["abstract"] = [kept["title"]]
    if kept.get("metadata") is None and record.get("year") is not None:
        kept["metadata"] = {"year": record["year"]}
    return kept


def _blank(kept: Mapping[str, Any]) -> bool:
    """Whether a record has neither abstract nor title."""
    return _empty(kept["abstract"])


def _empty(text: Any) -> bool:
    """Whether a text, or every text of a list, is absent or white space."""
    if isinstance(text, list):
        return all(map(_empty, text))
    return text is None or (isinstance(text, str) and not text.strip())


def convert(
    name: str, papers: Papers, splits: Sequence[Split], output: Path, *, raw: bool = False
) -> list[SplitCounts]:
    """Write a collection to a folder, file by file; the same release gives the same bytes.

    With ``raw`` the corpus has abstracts in one string. Raises OutputError, and DatasetError for a split
    without a query.
    """
    kept = [_searchable(split, papers.ids) for split in splits]
    for (_, pools), counts in kept:
        if not pools:
            raise DatasetError(
                f"{papers.path.parent}: expected queries in {counts.name}, found none that has a text; take "
                "all files from one release"
            )
        for query in counts.own_pool:
            pools[query].pop(query, None)  # gone already where a query is in two splits
    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(papers.path):
            complete = _kept(record)
            if not _blank(complete):
                stream.write(dump_record(raw_record(complete) if raw else complete))
    for (split, pools), _ in kept:
        write_topics(output / f"topics.{split}.tsv", (Topic(query, query) for query in pools))
        found = {
            query: (paper_id for paper_id in pool if paper_id in papers.ids) for query, pool in pools.items()
        }
        write_pools(output / f"pools.{split}.tsv", found)
        write_qrels(output / f"{name}.{split}.qrels", _judgments(pools))
    return [counts for _, counts in kept]


def _searchable(split: Split, ids: frozenset[str]) -> tuple[Split, SplitCounts]:
    """The queries of a split that have a text; their pools are not copied, a release may have millions."""
    pools = {query: pool for query, pool in split.pools.items() if query in ids}
    counts = SplitCounts(
        split.name,
        queries=len(pools),
        judgments=sum(len(pool) - (query in pool) for query, pool in pools.items()),
        unsearchable=sum(paper_id not in ids for pool in pools.values() for paper_id in pool),
        dropped=tuple(query for query in split.pools if query not in pools),
        own_pool=tuple(query for query, pool in pools.items() if query in pool),
    )
    return Split(split.name, pools), counts


def _judgments(pools: Pools) -> Iterator[Judgment]:
    for query, pool in pools.items():
        for paper_id, grade in pool.items():
            yield Judgment(query, paper_id, grade)
