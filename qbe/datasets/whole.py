"""Collections of whole-abstract queries with judged pools, in the layouts in which they are released.

RELISH (Brown et al., 2019) and TRECCOVID-RF (Voorhees et al., 2020) come as ASPIRE's authors release them
(Mysore et al., 2022): ``abstracts-{name}.jsonl`` holds all papers, ``test-pid2anns-{name}.json`` the judged
pool of every query of both splits, ``{name}-evaluation_splits.json`` the ids of the ``dev`` and ``test``
queries. RELISH has about 60 papers a query with the grades 2, 1 and 0; in TRECCOVID-RF each pool is the whole
collection of about 10,000 papers, with the grades 1 and 0.

SciDocs (Cohan et al., 2020) comes as its repository's instructions fetch it:
``paper_metadata_view_cite_read.json`` (one object, paper id to record) and, in ``cite``, ``cocite``,
``coview`` and ``coread``, ``val.qrel`` and ``test.qrel``. A query has about 5 papers of grade 1 and 25 of
grade 0. Its scorer counts papers that have no text; they stay in the judgements.

They become ``corpus.jsonl`` and, for each split, ``topics.{split}.tsv``, ``pools.{split}.tsv`` and
``{name}.{split}.qrels``. The id of a query is the id of its paper, which is left out of its own pool.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import read_records
from qbe.corpus.jsonl import dump_record
from qbe.datasets.judgments import Pools, as_judgments, read_object, read_pools
from qbe.datasets.records import Papers, corpus_record, has_text, raw_record, read_papers
from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.query import Topic
from qbe.topics import write_pools, write_topics
from qbe.trec import read_qrels, write_qrels

Splits = dict[str, Pools]
"""Judged pools by query, by the name of the split."""

SCIDOCS_PAPERS = "paper_metadata_view_cite_read.json"
SCIDOCS_SPLITS = tuple(
    f"{task}/{split}" for task in ("cite", "cocite", "coview", "coread") for split in ("val", "test")
)


class Collection(NamedTuple):
    """How a collection is read: its name, the files that are read, where the release can be obtained, and
    what reads papers and splits out of the folder.
    """

    name: str
    files: Sequence[str]
    where: str
    read: Callable[[Path], tuple[Papers, Splits]]


def aspire_files(name: str) -> tuple[str, str, str]:
    """The names of a release's files: papers, judgements, splits.

    >>> aspire_files("relish")
    ('abstracts-relish.jsonl', 'test-pid2anns-relish.json', 'relish-evaluation_splits.json')
    """
    return f"abstracts-{name}.jsonl", f"test-pid2anns-{name}.json", f"{name}-evaluation_splits.json"


def _read_aspire(name: str, highest: int, source: Path) -> tuple[Papers, Splits]:
    """The papers and splits (a query may be in both) of RELISH or TRECCOVID-RF, with grades to ``highest``.

    Raises CorpusError for papers, and DatasetError for judgements or splits, that do not have the form of
    the release or name papers that are missing in it.
    """
    abstracts, judgments, splits_file = (source / file for file in aspire_files(name))
    papers = read_papers(abstracts)
    pools = read_pools(judgments, papers.ids | papers.without_text, abstracts.name, highest)
    content, splits = read_object(splits_file), {}
    for split in ("dev", "test"):
        ids = content.get(split)
        wrong = [q for q in ids if not isinstance(q, str) or q not in pools] if isinstance(ids, list) else ids
        if wrong or not ids:
            raise DatasetError(
                f"{splits_file}: expected a list of judged queries as {split}, found {ascii(wrong)[:60]}; "
                "take all files from one release"
            )
        # RELISH lists a query twice whose paper two people judged; its scorer counts it once.
        splits[split] = {query: pools[query] for query in ids}
    return papers, splits


def _read_scidocs(source: Path) -> tuple[Papers, Splits]:
    """The papers and splits ``{task}.{split}`` of SciDocs; papers that are judged and missing are kept.

    Raises CorpusError for a record that is no paper, FileFormatError for a file of judgements that is no
    qrels file, DatasetError for a grade other than 0 or 1.
    """
    splits = {}
    for split in SCIDOCS_SPLITS:
        path = source / f"{split}.qrel"
        pools = splits[split.replace("/", ".")] = read_qrels(path)
        unfit = {grade for pool in pools.values() for grade in pool.values()} - {0, 1}
        if unfit:
            raise DatasetError(
                f"{path}: expected grades 0 and 1, found {min(unfit)}; take the file of the release"
            )
    return read_papers(source / SCIDOCS_PAPERS), splits


RELISH = Collection(
    "relish",
    aspire_files("relish"),
    "https://figshare.com/articles/dataset/RELISH-Aspire/19425506",
    functools.partial(_read_aspire, "relish", 2),
)
TRECCOVID = Collection(
    "treccovid",
    aspire_files("treccovid"),
    "https://figshare.com/articles/dataset/TRECCOVID-RF-Aspire/19425515",
    functools.partial(_read_aspire, "treccovid", 1),
)
SCIDOCS = Collection(
    "scidocs",
    (SCIDOCS_PAPERS, *(f"{split}.qrel" for split in SCIDOCS_SPLITS)),
    "https://github.com/allenai/scidocs (aws s3 sync ...)",
    _read_scidocs,
)


def find_source(name: str, files: Sequence[str], where: str, source: Path | None) -> Path:
    """The folder of a release: ``source`` if given, else ``$QBE_DATA/NAME``.

    Raises DatasetError, which says where to get the release, when there is no such folder or a file is
    missing in it.

    >>> Path("papers.jsonl").touch()
    >>> find_source("mine", ["papers.jsonl"], "https://example.org", Path())
    PosixPath('.')
    """
    data = os.environ.get("QBE_DATA")
    if source is None and data:
        source = Path(data, name)
    if source is None or not source.is_dir():
        actual = f"no folder {source}" if source else "neither"
        raise DatasetError(
            f"expected {name}'s release in `source` or in $QBE_DATA/{name}, found {actual}; get it "
            f"from {where}"
        )
    absent = [file for file in files if not (source / file).is_file()]
    if absent:
        raise DatasetError(
            f"{source}: expected the files of {name}'s release, found no {', '.join(absent)}; get them "
            f"from {where}"
        )
    return source


def write(collection: Collection, source: Path | None, output: Path, *, raw: bool = False) -> list[str]:
    """Write a collection to a folder, each file atomically; return lines that summarize what was written.

    With ``raw`` each abstract of the corpus is one string. Raises OutputError, and DatasetError for a split
    without a query that has a text.
    """
    folder = find_source(collection.name, collection.files, collection.where, source)
    papers, splits = collection.read(folder)
    lines = [
        f"{collection.name}: {len(papers.ids):,} papers ({papers.title_only:,} with a title only) from "
        f"{folder}"
    ]
    if papers.without_text:
        lines.append(f"  papers without text, left out: {_some(sorted(papers.without_text))}")
    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(papers.path):
            complete = corpus_record(record)
            if has_text(complete):
                stream.write(dump_record(raw_record(complete) if raw else complete))
    for split, pools in splits.items():
        lines += _write_split(output, f"{collection.name}.{split}.qrels", split, pools, papers.ids)
    return lines


def _write_split(output: Path, qrels: str, split: str, pools: Pools, ids: frozenset[str]) -> list[str]:
    """Write the topics, pools and judgements of a split; return what was written and left out as text.

    Pools are not copied: a release may have millions of judgements. Papers without text are in the qrels,
    for a scorer to count, but in no pool.
    """
    dropped = [query for query in pools if query not in ids]
    searchable = {query: pool for query, pool in pools.items() if query in ids}
    if not searchable:
        raise DatasetError(
            f"expected queries in {split}, found none that has a text; take all files from one release"
        )
    in_own_pool = [query for query, pool in searchable.items() if query in pool]
    judgments = sum(len(pool) - (query in pool) for query, pool in searchable.items())
    without_text = sum(paper_id not in ids for pool in searchable.values() for paper_id in pool)
    write_topics(output / f"topics.{split}.tsv", (Topic(query, query) for query in searchable))
    others = {
        query: {paper_id: grade for paper_id, grade in pool.items() if paper_id != query}
        if query in pool
        else pool
        for query, pool in searchable.items()
    }
    indexed = {query: (paper_id for paper_id in pool if paper_id in ids) for query, pool in others.items()}
    write_pools(output / f"pools.{split}.tsv", indexed)
    write_qrels(output / qrels, as_judgments(others))
    lines = [f"  {split}: {len(searchable):,} queries, {judgments:,} judgements"]
    if without_text:
        lines.append(f"    {without_text:,} of them of papers without text: in the qrels, in no pool")
    if dropped:
        lines.append(f"    queries without text, left out: {_some(dropped)}")
    if in_own_pool:
        lines.append(f"    left out of its own pool: {_some(in_own_pool)}")
    return lines


def _some(ids: Sequence[str]) -> str:
    """The first of many ids, and their number."""
    return ", ".join(ids[:5]) + (f", ... ({len(ids):,})" if len(ids) > 5 else "")
