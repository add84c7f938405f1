"""A file of graded pairs as a collection: its papers, topics by facet, and pools.

The protocols ``crossed`` and ``exploration`` of ``qbe evaluate`` take the same file as judgements.
"""

from __future__ import annotations

import os
from pathlib import Path

from qbe.corpus.read import read_corpus
from qbe.corpus.reading import SKIP, Reading
from qbe.datasets.arxiv import ARXIV
from qbe.datasets.names import GRADED_PAIRS
from qbe.datasets.records import raw_line, unsplit
from qbe.errors import DatasetError, UsageError
from qbe.query import Topic
from qbe.runs import read_graded_pairs, write_pools, write_topics
from qbe.types import Facet
from qbe.util.files import atomic_file


def write_graded_pairs(source: Path | None, corpus: str | None, output: Path) -> list[str]:
    """Write ``corpus.jsonl``, ``topics.tsv`` (each query by the three facets) and ``pools.tsv``.

    ``source`` is the file of pairs, or a folder, of which all ``.tsv`` below it are; ``corpus`` is one that
    holds their papers, by default that of arXiv in QBE_DATA. Returns lines that summarize what was written.
    Raises UsageError where one of both is not given, DatasetError where papers are not in the corpus,
    FileFormatError for another file than one of pairs, CorpusError for a corpus that cannot be read,
    OutputError where nothing can be written.
    """
    if source is None:
        raise UsageError("expected a file of graded pairs as `source`, found none; give one")
    data = os.environ.get("QBE_DATA")
    if corpus is None and not data:
        raise UsageError(
            f"expected the papers of the pairs as `corpus`, or QBE_DATA set to a folder that holds {ARXIV}, "
            "found neither; qbe datasets arxiv-cs writes it"
        )
    pools: dict[str, list[str]] = {}
    for file in sorted(source.rglob("*.tsv")) if source.is_dir() else [source]:
        for query, pairs in read_graded_pairs(file).items():
            pools[query] = list(dict.fromkeys([*pools.get(query, []), *(pair.paper_id for pair in pairs)]))
    if not pools:
        raise DatasetError(f"{source}: expected files of graded pairs (.tsv) in the folder, found none")
    papers = {paper_id for query, pool in pools.items() for paper_id in (query, *pool)}
    output.mkdir(parents=True, exist_ok=True)
    missing = set(papers)
    with atomic_file(output / "corpus.jsonl") as stream:
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
