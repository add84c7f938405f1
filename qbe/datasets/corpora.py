"""Corpora of other people's files: ``corpus.jsonl``, cleaned, each abstract as one string.

arXiv's metadata are published by Cornell University under CC0 as a snapshot
(``arxiv-metadata-oai-snapshot.json``), the ACL Anthology's as XML (CC BY 4.0; its repository's ``data/xml``).
Both are corpora without queries. A file of graded pairs (tab-separated: query_id, paper_id, background,
method, result) brings queries: its papers are taken from a corpus, and become topics by facet with pools; the
protocols ``crossed`` and ``exploration`` of ``qbe evaluate`` take the same file as judgements.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from qbe.corpus.read import read_corpus
from qbe.corpus.reading import SKIP, Reading
from qbe.corpus.rejected import SUFFIX
from qbe.datasets.citing import listing
from qbe.datasets.names import GRADED_PAIRS
from qbe.datasets.records import raw_line, unsplit
from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.graded_pairs import read_graded_pairs
from qbe.query import Topic
from qbe.topics import write_pools, write_topics
from qbe.types import Facet

CORPUS = "corpus.jsonl"
BYTES_A_RECORD = 1600
"""Of arXiv's snapshot, on average."""

PAPERS_A_SECOND = 50
"""What two cores without AMX encode at least, by ``benchmarks/README.md``."""

ARXIV = "arxiv-cs/arxiv-cs.jsonl.xz"
"""Where the papers of qbe's own graded pairs are, below QBE_DATA."""


class Source(NamedTuple):
    """A corpus: its name, the files it is made of, where they are, and how they are read.

    ``share`` is the share of a file's records that are kept; ``is_folder`` says whether the source may be a
    folder.
    """

    name: str
    files: str
    where: str
    reading: Reading
    share: float
    is_folder: bool = False


ARXIV_CS = Source(
    "arxiv-cs",
    "arxiv-metadata-oai-snapshot.json",
    "kaggle.com/datasets/Cornell-University/arxiv",
    Reading(format="arxiv", categories=("cs.*", "stat.ML", "eess.AS", "eess.IV"), on_error=SKIP),
    share=0.35,
)
ACL_ANTHOLOGY = Source(
    "acl-anthology",
    "data/xml",
    "github.com/acl-org/acl-anthology",
    Reading(format="acl-anthology", on_error=SKIP, max_rejected=0.05),
    share=1,
    is_folder=True,
)


def write_corpus(
    corpus: Source,
    source: Path | None,
    output: Path,
    limit: int | None,
    report: Callable[[str], None],
) -> list[str]:
    """Write the papers of a corpus to ``corpus.jsonl`` in ``output``.

    ``source`` is the downloaded file or folder, by default ``$QBE_DATA/NAME/`` and the files' name. What is
    to be expected of time and space is reported first. Returns lines that summarize what was written, and
    the command that indexes it. Raises DatasetError where the source is absent, CorpusError where it cannot
    be read, OutputError where nothing can be written.
    """
    path = _find(corpus, source)
    if not corpus.is_folder:
        for line in expectations(path.stat().st_size, corpus.share, limit):
            report(line)
    target = output / CORPUS
    listed = target.with_name(target.name + SUFFIX)
    output.mkdir(parents=True, exist_ok=True)
    papers = 0
    with listing(listed) as left_out, atomic_file(target) as stream:
        for paper in read_corpus([str(path)], unsplit, replace(corpus.reading, limit=limit), left_out):
            papers += 1
            stream.write(raw_line(paper))
    summary = [f"{corpus.name}: {papers:,} papers in {target}"]
    if left_out:
        summary.append(f"{left_out.summary()}, listed in {listed}")
    return [*summary, f"next: qbe index --corpus {target} --output indexes/{corpus.name}"]


def expectations(size: int, share: float, limit: int | None) -> list[str]:
    r"""What reading and indexing a file of ``size`` bytes will take, as lines of text.

    >>> print(*expectations(4_000_000_000, 0.35, None), sep="\n")
    about 2,500,000 records, 875,000 papers of them: read in 1 min, 1.4 GB on the disk
    indexed later: about 4.9 h on two cores, 5.2 GB on the disk, 3.5 GB of memory
    """
    records = size // BYTES_A_RECORD
    papers = int(records * share)
    if limit is not None:
        papers = min(papers, limit)
        records = min(records, int(limit / share))
    minutes = max(1, round(records / 40_000 / 60))
    hours = papers / PAPERS_A_SECOND / 3600
    return [
        f"about {records:,} records, {papers:,} papers of them: read in {minutes} min, "
        f"{papers * BYTES_A_RECORD / 1e9:.1f} GB on the disk",
        f"indexed later: about {hours:.1f} h on two cores, {papers * 6e3 / 1e9:.1f} GB on the disk, "
        f"{max(1.0, papers * 4e3 / 1e9):.1f} GB of memory",
    ]


def _find(corpus: Source, source: Path | None) -> Path:
    data = os.environ.get("QBE_DATA")
    candidates = [source] if source is not None else [Path(data, corpus.name, corpus.files)] if data else []
    for path in candidates:
        inside = path / corpus.files
        if inside.exists():
            return inside
        if path.is_file() or (corpus.is_folder and path.is_dir()):
            return path
    actual = f"no {candidates[0]}" if candidates else "neither"
    raise DatasetError(
        f"expected {corpus.name}'s file {corpus.files} as `source` or in $QBE_DATA/{corpus.name}, found "
        f"{actual}; get it from {corpus.where}"
    )


def write_graded_pairs(source: Path | None, corpus: str | None, output: Path) -> list[str]:
    """Write ``corpus.jsonl``, ``topics.tsv`` (each query by the three facets) and ``pools.tsv``.

    ``source`` is the file of pairs, ``corpus`` one that holds their papers, by default that of arXiv in
    QBE_DATA. Returns lines that summarize what was written. Raises DatasetError where one of both is not
    given or papers are not in the corpus, FileFormatError for another file than one of pairs, CorpusError for
    a corpus that cannot be read, OutputError where nothing can be written.
    """
    if source is None:
        raise DatasetError("expected a file of graded pairs as `source`, found none; give one")
    data = os.environ.get("QBE_DATA")
    if corpus is None and not data:
        raise DatasetError(
            f"expected the papers of the pairs as `corpus`, or QBE_DATA set to a folder that holds {ARXIV}, "
            "found neither"
        )
    pools = {query: [pair.paper_id for pair in pairs] for query, pairs in read_graded_pairs(source).items()}
    papers = {paper_id for query, pool in pools.items() for paper_id in (query, *pool)}
    output.mkdir(parents=True, exist_ok=True)
    missing = set(papers)
    with atomic_file(output / CORPUS) as stream:
        for paper in read_corpus([corpus or str(Path(data or "", ARXIV))], unsplit, Reading(on_error=SKIP)):
            if paper.paper_id in missing:
                missing.remove(paper.paper_id)
                stream.write(raw_line(paper))
        if missing:
            raise DatasetError(
                f"expected the {len(papers):,} papers of {source} in `corpus`, found {len(missing):,} not "
                f"there, such as {min(missing)}; give the corpus that the pairs were made of"
            )
    topics = [Topic(f"{query}_{facet}", query, facet) for query in pools for facet in Facet]
    write_topics(output / "topics.tsv", topics)
    write_pools(output / "pools.tsv", {topic.query_id: pools[topic.paper_id] for topic in topics})
    return [f"{GRADED_PAIRS}: {len(papers):,} papers, {len(pools)} queries by 3 facets in {output}"]
