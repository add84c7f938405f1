"""Corpora without queries, made out of the files that their publishers offer: ``corpus.jsonl`` and no more.

arXiv's metadata are published by Cornell University under CC0 as a snapshot
(``arxiv-metadata-oai-snapshot.json``), the ACL Anthology's as XML (CC BY 4.0; its repository's ``data/xml``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from qbe.corpus.jsonl import dump_record
from qbe.corpus.read import read_corpus
from qbe.corpus.reading import SKIP, Reading
from qbe.corpus.record import paper_to_record
from qbe.corpus.rejected import SUFFIX, RejectedRecords
from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.types import Paper

CORPUS = "corpus.jsonl"
BYTES_A_RECORD = 1600
"""Of arXiv's snapshot, on average."""

PAPERS_A_SECOND = 50
"""What two cores without AMX encode at least, by ``benchmarks/README.md``."""


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
    """Write the papers of a corpus to ``corpus.jsonl`` in ``output``, cleaned, each abstract as one string.

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
    with atomic_file(listed) as lines, atomic_file(target) as stream:
        left_out, papers = RejectedRecords(lines), 0
        reading = replace(corpus.reading, limit=limit)
        for paper in read_corpus([str(path)], unsplit, reading, left_out):
            papers += 1
            stream.write(raw_line(paper))
    if not left_out:
        listed.unlink()
    summary = [f"{corpus.name}: {papers:,} papers in {target}"]
    if left_out:
        summary.append(f"{left_out.summary()}, listed in {listed}")
    return [*summary, f"next: qbe index --corpus {target} --output indexes/{corpus.name}"]


def unsplit(abstract: str) -> list[str]:
    """The whole abstract: the index splits it into sentences."""
    return [abstract]


def raw_line(paper: Paper) -> bytes:
    """A paper as a line of JSON with its abstract as one string."""
    return dump_record({**paper_to_record(paper), "abstract": paper.abstract})


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
