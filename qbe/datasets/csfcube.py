"""CSFCube's release (Mysore et al., 2021) as files of the other commands.

These are ``corpus.jsonl``, ``topics.tsv``, ``pools.tsv``, ``csfcube.{facet}.qrels`` and ``folds.json``.

A query paper is left out of its own pool and judgements. The release has 8781666 in its own pools
(background and result) with the highest grade; the published figures are computed without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qbe.corpus import read_corpus, read_records
from qbe.corpus.jsonl import dump_record
from qbe.corpus.record import FIELDS
from qbe.datasets.judgments import Pools, as_judgments, read_object, read_pools
from qbe.datasets.records import raw_record
from qbe.datasets.release import ABSTRACTS, FOLDS, changed_files, judgments_file
from qbe.errors import DatasetError
from qbe.files import atomic_file, sha256
from qbe.query import Topic
from qbe.topics import write_pools, write_topics
from qbe.trec import write_qrels
from qbe.types import Facet, Paper

HIGHEST = 3
"""The highest grade."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers of the collection that was written.

    Attributes:
        papers: number of papers.
        sentences: number of sentences of all abstracts.
        queries: number of queries of each facet.
        judgments: number of judgements of each facet.
        in_own_pool: ids of queries whose paper was in its own pool and was left out there.
        no_sentence: ids of queries whose paper has no sentence of the query's facet.
    """

    papers: int
    sentences: int
    queries: Mapping[Facet, int]
    judgments: Mapping[Facet, int]
    in_own_pool: tuple[str, ...]
    no_sentence: tuple[str, ...]


def convert(source: Path, output: Path, *, raw: bool = False) -> Summary:
    """Check a release and write it to a folder, each file atomically; the same release gives the same bytes.

    With ``raw`` each abstract of the corpus is one string, without labels. Nothing is written unless the
    whole release is valid. Raises CorpusError for papers, and DatasetError for judgements or folds, that do
    not have the form of the release or name unknown papers, and OutputError.
    """
    papers, facets = _read(source)
    topics = {
        facet: [Topic(f"{query}_{facet}", query, facet) for query in pools] for facet, pools in facets.items()
    }
    in_own_pool = tuple(
        topic.query_id
        for facet, of_facet in topics.items()
        for topic in of_facet
        if facets[facet][topic.paper_id].pop(topic.paper_id, None) is not None
    )
    all_topics = [topic for of_facet in topics.values() for topic in of_facet]
    folds = _read_folds(source / FOLDS, {topic.query_id for topic in all_topics})

    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(source / ABSTRACTS):
            kept = {field: record[field] for field in FIELDS if field in record}
            stream.write(dump_record(raw_record(kept) if raw else kept))
    write_topics(output / "topics.tsv", all_topics)
    pools_by_query = {
        topic.query_id: facets[facet][topic.paper_id]
        for facet, of_facet in topics.items()
        for topic in of_facet
    }
    write_pools(output / "pools.tsv", pools_by_query)
    for facet, of_facet in topics.items():
        judged = {topic.query_id: pools_by_query[topic.query_id] for topic in of_facet}
        write_qrels(output / f"csfcube.{facet}.qrels", as_judgments(judged))
    with atomic_file(output / "folds.json") as stream:
        stream.write(folds)
    return Summary(
        papers=len(papers),
        sentences=sum(len(paper.sentences) for paper in papers.values()),
        queries={facet: len(pools) for facet, pools in facets.items()},
        judgments={facet: sum(map(len, pools.values())) for facet, pools in facets.items()},
        in_own_pool=in_own_pool,
        no_sentence=tuple(t.query_id for t in all_topics if not papers[t.paper_id].positions(t.facet)),
    )


def _read(source: Path) -> tuple[dict[str, Paper], dict[Facet, Pools]]:
    """The papers by id, and the judged pools of each facet."""
    papers = {paper.paper_id: paper for paper in read_corpus([str(source / ABSTRACTS)])}
    unlabelled = [paper_id for paper_id, paper in papers.items() if not paper.labelled]
    if unlabelled:
        raise DatasetError(
            f"{source / ABSTRACTS}: expected pred_labels for every paper, found none for {unlabelled[0]}; "
            "take the file of the release"
        )
    pools = {facet: read_pools(source / judgments_file(facet), papers, ABSTRACTS, HIGHEST) for facet in Facet}
    return papers, pools


def _read_folds(path: Path, query_ids: set[str]) -> bytes:
    """The content of the folds file, which must name judged queries only."""
    for facet, folds in read_object(path).items():
        for name, members in folds.items() if isinstance(folds, dict) else [(facet, folds)]:
            unknown = [q for q in members if q not in query_ids] if isinstance(members, list) else [members]
            if unknown:
                raise DatasetError(
                    f"{path}: expected lists of judged queries, found {unknown[0]!r} in {facet}/{name}; "
                    "take all files from one release"
                )
    return path.read_bytes()


def describe(summary: Summary, source: Path) -> list[str]:
    """Summarize a collection that was written, as lines of text; ``source`` is the folder of the release."""
    queries = ", ".join(f"{count} {facet}" for facet, count in summary.queries.items())
    judgments = sum(summary.judgments.values())
    lines = [
        f"csfcube: {summary.papers:,} papers ({summary.sentences:,} sentences) from {source}",
        f"  {sum(summary.queries.values())} queries ({queries}), {judgments:,} judgements",
    ]
    if summary.in_own_pool:
        lines.append(f"  left out of its own pool: {', '.join(summary.in_own_pool)}")
    lines.append(f"  queries without a sentence of their facet: {', '.join(summary.no_sentence) or 'none'}")
    lines += [
        f"  {name} differs from the release's file, its form was checked (sha256 {sha256(source / name)})"
        for name in changed_files(source)
    ]
    return lines
