"""CSFCube's release as the files that the other commands take.

Written are ``corpus.jsonl``, ``topics.tsv``, ``pools.tsv``, ``csfcube.{facet}.qrels`` and ``folds.json``.

A query paper is left out of its own pool and judgements. The release has 8781666 in its own pools
(background and result) with the highest grade; the published figures are without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qbe.corpus import read_corpus, read_records
from qbe.corpus.jsonl import dump_record
from qbe.corpus.record import FIELDS
from qbe.datasets.judgments import Pools, read_object, read_pools
from qbe.datasets.raw import raw_record
from qbe.datasets.release import ABSTRACTS, FOLDS, judgments_file
from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.query import Topic
from qbe.trec import Judgment, write_pools, write_qrels, write_topics
from qbe.types import Facet

HIGHEST = 3
"""The highest grade."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a conversion found; ``own_pool`` and ``no_sentence`` hold query ids.

    ``own_pool``: queries whose paper stood in its own pool and was left out. ``no_sentence``: queries
    whose paper has no sentence of the query's facet.
    """

    papers: int
    sentences: int
    queries: Mapping[Facet, int]
    judgments: Mapping[Facet, int]
    own_pool: tuple[str, ...]
    no_sentence: tuple[str, ...]


def convert(source: Path, output: Path, *, raw: bool = False) -> Summary:
    """Check a release and write it to a folder, file by file; the same release gives the same bytes.

    With ``raw`` the corpus has abstracts in one string, without labels. Nothing is written unless all of
    the release is sound. Raises CorpusError for unfit papers, DatasetError for judgements or folds that do
    not follow the release's form or name unknown papers, and OutputError.
    """
    papers = {paper.paper_id: paper for paper in read_corpus([str(source / ABSTRACTS)])}
    unlabelled = [paper_id for paper_id, paper in papers.items() if not paper.labelled]
    if unlabelled:
        raise DatasetError(
            f"{source / ABSTRACTS}: expected pred_labels for every paper, found none for {unlabelled[0]}; "
            "take the file of the release"
        )
    facets = {
        facet: read_pools(source / judgments_file(facet), papers, ABSTRACTS, HIGHEST) for facet in Facet
    }
    topics = {
        facet: [Topic(f"{query}_{facet}", query, facet) for query in pools] for facet, pools in facets.items()
    }
    own_pool = tuple(
        topic.query_id
        for facet, mine in topics.items()
        for topic in mine
        if facets[facet][topic.paper_id].pop(topic.paper_id, None) is not None
    )
    every = [topic for mine in topics.values() for topic in mine]
    folds = _read_folds(source / FOLDS, {topic.query_id for topic in every})

    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(source / ABSTRACTS):
            kept = {field: record[field] for field in FIELDS if field in record}
            stream.write(dump_record(raw_record(kept) if raw else kept))
    write_topics(output / "topics.tsv", every)
    write_pools(
        output / "pools.tsv", {t.query_id: facets[f][t.paper_id] for f, mine in topics.items() for t in mine}
    )
    for facet, mine in topics.items():
        write_qrels(output / f"csfcube.{facet}.qrels", _judgments(mine, facets[facet]))
    with atomic_file(output / "folds.json") as stream:
        stream.write(folds)
    return Summary(
        papers=len(papers),
        sentences=sum(len(paper.sentences) for paper in papers.values()),
        queries={facet: len(pools) for facet, pools in facets.items()},
        judgments={facet: sum(map(len, pools.values())) for facet, pools in facets.items()},
        own_pool=own_pool,
        no_sentence=tuple(t.query_id for t in every if not papers[t.paper_id].positions(t.facet)),
    )


def _judgments(topics: list[Topic], pools: Pools) -> Iterator[Judgment]:
    for topic in topics:
        for paper_id, grade in pools[topic.paper_id].items():
            yield Judgment(topic.query_id, paper_id, grade)


def _read_folds(path: Path, query_ids: set[str]) -> bytes:
    """The folds as they stand, once they name queries we know."""
    for facet, folds in read_object(path).items():
        for name, members in folds.items() if isinstance(folds, dict) else [(facet, folds)]:
            strangers = [q for q in members if q not in query_ids] if isinstance(members, list) else [members]
            if strangers:
                raise DatasetError(
                    f"{path}: expected lists of judged queries, found {strangers[0]!r} in {facet}/{name}; "
                    "take all files from one release"
                )
    return path.read_bytes()
