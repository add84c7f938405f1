"""Collections of whole-abstract queries with judged pools, in the layouts in which they are released.

RELISH (Brown et al., 2019) and TRECCOVID-RF (Voorhees et al., 2020) come as ASPIRE's authors release them
(Mysore et al., 2022); in TRECCOVID-RF each pool is the whole collection. SciDocs (Cohan et al., 2020) comes
as its repository's instructions fetch it; its scorer counts papers without text, which stay in the
judgements. The id of a query is the id of its paper, which is left out of its own pool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import parse_paper, read_records
from qbe.corpus.records import FIELDS, dump_record
from qbe.corpus.sentences import unsplit
from qbe.datasets.releases import (
    DatasetOptions,
    Pools,
    Report,
    find_release,
    raw_record,
    read_object,
    read_pools,
    write_queries,
)
from qbe.errors import CorpusError, DatasetError
from qbe.query import Topic
from qbe.runs import read_qrels
from qbe.util.files import atomic_file

Splits = dict[str, Pools]  # judged pools by query, by the name of the split

SCIDOCS_SPLITS = tuple(
    f"{task}/{split}" for task in ("cite", "cocite", "coview", "coread") for split in ("val", "test")
)


class Papers(NamedTuple):
    """Ids of papers with a text, of those with a title only, and of those without any text."""

    ids: set[str]
    title_only: set[str]
    without_text: set[str]


class Release(NamedTuple):
    """Files of a release, where to get it, and the function that reads its splits."""

    papers: str
    judgments: Sequence[str]
    where: str
    read: Callable[[Path, Papers], Splits]


def _read_aspire(name: str, source: Path, papers: Papers) -> Splits:
    """Read the splits of RELISH or TRECCOVID-RF; a query may be in both."""
    release = RELEASES[name]
    judgments, splits_file = (source / file for file in release.judgments)
    pools = read_pools(judgments, papers.ids | papers.without_text, release.papers)
    content = read_object(splits_file)
    try:
        # RELISH lists a query twice whose paper two people judged; its scorer counts it once.
        return {split: {query: pools[query] for query in content[split]} for split in ("dev", "test")}
    except (KeyError, TypeError) as error:
        expected = "expected lists of judged queries as dev and test"
        raise DatasetError(
            f"{splits_file}: {expected}, found {error}; take all files from one release"
        ) from error


RELEASES = {
    name: Release(
        f"abstracts-{name}.jsonl",
        (f"test-pid2anns-{name}.json", f"{name}-evaluation_splits.json"),
        f"https://figshare.com/articles/dataset/{number}",
        functools.partial(_read_aspire, name),
    )
    for name, number in (("relish", 19425506), ("treccovid", 19425515))
}
RELEASES["scidocs"] = Release(
    "paper_metadata_view_cite_read.json",
    tuple(f"{split}.qrel" for split in SCIDOCS_SPLITS),
    "https://github.com/allenai/scidocs (aws s3 sync ...)",
    lambda source, _: {
        split.replace("/", "."): read_qrels(source / f"{split}.qrel") for split in SCIDOCS_SPLITS
    },
)


def write(name: str, options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write a collection of RELEASES to a folder; return lines that summarize it."""
    release = RELEASES[name]
    folder = find_release(name, (release.papers, *release.judgments), release.where, options.source)
    papers = _write_corpus(folder / release.papers, output / "corpus.jsonl", options.raw)
    lines = [
        f"{name}: {len(papers.ids):,} papers ({len(papers.title_only):,} with a title only) from {folder}"
    ]
    if papers.without_text:
        lines.append(f"  papers without text, left out: {_some(sorted(papers.without_text))}")
    for split, pools in release.read(folder, papers).items():
        lines += _write_split(output, f"{name}.{split}.qrels", split, pools, papers.ids)
    return lines


def _write_corpus(source: Path, target: Path, raw: bool) -> Papers:
    """Write the papers that have a text; the title stands for an empty abstract, as in SciDocs' scorer."""
    papers = Papers(set(), set(), set())
    with atomic_file(target) as stream:
        for where, record in read_records(source):
            kept = {field: record[field] for field in FIELDS if field in record}
            kept["title"] = kept.get("title") or ""
            if kept.get("metadata") is None and record.get("year") is not None:
                kept["metadata"] = {"year": record["year"]}
            of_title = _is_empty(kept.get("abstract"))
            if of_title:
                kept["abstract"] = [kept["title"]]
            is_empty = _is_empty(kept["abstract"])
            # Any split serves to check a record; a full stop stands for an absent text.
            checked = kept | {"abstract": ["."]} if is_empty else kept
            paper_id = parse_paper(checked, where, unsplit).paper_id
            if paper_id in papers.ids or paper_id in papers.without_text:
                raise CorpusError(
                    f"{where}: expected each paper_id once, found {paper_id!r} again; drop one of them"
                )
            if is_empty:
                papers.without_text.add(paper_id)
                continue
            papers.ids.add(paper_id)
            if of_title:
                papers.title_only.add(paper_id)
            stream.write(dump_record(raw_record(kept) if raw else kept))
    return papers


def _is_empty(text: Any) -> bool:
    if isinstance(text, list):
        return all(map(_is_empty, text))
    return text is None or (isinstance(text, str) and not text.strip())


def _write_split(output: Path, qrels: str, split: str, pools: Pools, ids: Collection[str]) -> list[str]:
    """Write a split; papers without text are in the qrels, for a scorer to count, but in no pool."""
    dropped = [query for query in pools if query not in ids]
    in_own_pool = [query for query, pool in pools.items() if query in ids and query in pool]
    judged = {
        query: {paper_id: grade for paper_id, grade in pool.items() if paper_id != query}
        for query, pool in pools.items()
        if query in ids
    }
    if not judged:
        raise DatasetError(
            f"expected queries in {split}, found none that has a text; take all files from one release"
        )
    indexed = {query: [paper_id for paper_id in pool if paper_id in ids] for query, pool in judged.items()}
    topics = (Topic(query, query) for query in judged)
    write_queries(output, topics, {qrels: judged}, indexed, f".{split}")
    number = sum(map(len, judged.values()))
    without_text = number - sum(map(len, indexed.values()))
    lines = [f"  {split}: {len(judged):,} queries, {number:,} judgements"]
    if without_text:
        lines.append(f"    {without_text:,} of them of papers without text: in the qrels, in no pool")
    if dropped:
        lines.append(f"    queries without text, left out: {_some(dropped)}")
    if in_own_pool:
        lines.append(f"    left out of its own pool: {_some(in_own_pool)}")
    return lines


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f", ... ({len(ids):,})" if len(ids) > 5 else "")
