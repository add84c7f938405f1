"""CSFCube's release (Mysore et al., 2021): found or downloaded, and written as files of the other commands.

A query paper is left out of its own pool and judgements: the release has 8781666 in its own pools with the
highest grade, and the published figures are computed without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qbe.corpus import read_corpus, read_records
from qbe.corpus.records import FIELDS, dump_record
from qbe.datasets import releases
from qbe.datasets.releases import DatasetOptions, Report, raw_record, read_pools, write_queries
from qbe.query import Topic
from qbe.types import Facet
from qbe.util.files import StrPath, atomic_file, sha256
from qbe.util.web import matches

# Release v1.1 of November 2021, which has evaluation scripts.
COMMIT = "7ffe012c1d92c470f185fc086086caf5b8e05ef3"
WHERE = "https://github.com/iesl/CSFCube"
BASE_URL = f"https://raw.githubusercontent.com/iesl/CSFCube/{COMMIT}/"

JUDGMENTS = {facet: f"test-pid2anns-csfcube-{facet}.json" for facet in Facet}
ABSTRACTS = "abstracts-csfcube-preds.jsonl"
FOLDS = "evaluation_splits.json"


# The file's id in the commit; the other digests are SHA-256 of the files.
DIGESTS: Mapping[str, str] = {
    ABSTRACTS: "git:ec4598cfed007d05701083f967813e311b28a9dc",
    JUDGMENTS[Facet.BACKGROUND]: "sha256:2015cbf965377374e020b0ec133351ec1feb731b9a9c40da0e446ef6eee4fa5e",
    JUDGMENTS[Facet.METHOD]: "sha256:4d9b48f4b6a7a4fc24a30e0c0e74d1cc53eb4214ec4b855e3cd98e86829323a2",
    JUDGMENTS[Facet.RESULT]: "sha256:5ed7a63bc20e3deb725f8ec82abfcb1c5d79673befc942509b48effceb3be031",
    FOLDS: "sha256:1d23a1b2110e874809c9516f65c70e3c6e4b8fe3bd748ff36ff05c4875226c88",
}


def find_release(source: StrPath | None, report: Report = lambda _: None) -> Path:
    """Return the folder ``source``, else ``$QBE_DATA/csfcube``, else a download, which is reported."""
    folder = releases.find_or_download("csfcube", source, BASE_URL, DIGESTS, report)
    return releases.find_release("csfcube", DIGESTS, WHERE, folder)


def write(options: DatasetOptions, output: Path, report: Report) -> list[str]:
    """Find or download the release, and write it to a folder; return a summary."""
    return convert(find_release(options.source, report), output, raw=options.raw)


def convert(source: Path, output: Path, *, raw: bool = False) -> list[str]:
    """Write a release to a folder, and return lines that summarize it."""
    papers = {paper.paper_id: paper for paper in read_corpus([str(source / ABSTRACTS)])}
    facets = {facet: read_pools(source / JUDGMENTS[facet], papers, ABSTRACTS) for facet in Facet}
    topics = [Topic(f"{query}_{facet}", query, facet) for facet, pools in facets.items() for query in pools]
    pools = {topic.query_id: facets[topic.facet][topic.paper_id] for topic in topics if topic.facet}
    in_own_pool = [t.query_id for t in topics if pools[t.query_id].pop(t.paper_id, None) is not None]
    folds = (source / FOLDS).read_bytes()

    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(source / ABSTRACTS):
            kept = {field: record[field] for field in FIELDS if field in record}
            stream.write(dump_record(raw_record(kept) if raw else kept))
    qrels = {
        f"csfcube.{facet}.qrels": {t.query_id: pools[t.query_id] for t in topics if t.facet is facet}
        for facet in facets
    }
    write_queries(output, topics, qrels, pools)
    with atomic_file(output / "folds.json") as stream:
        stream.write(folds)

    queries = ", ".join(f"{len(of_facet)} {facet}" for facet, of_facet in facets.items())
    sentences = sum(len(paper.sentences) for paper in papers.values())
    lines = [
        f"csfcube: {len(papers):,} papers ({sentences:,} sentences) from {source}",
        f"  {len(topics)} queries ({queries}), {sum(map(len, pools.values())):,} judgements",
    ]
    if in_own_pool:
        lines.append(f"  left out of its own pool: {', '.join(in_own_pool)}")
    no_sentence = [t.query_id for t in topics if not papers[t.paper_id].positions(t.facet)]
    lines.append(f"  queries without a sentence of their facet: {', '.join(no_sentence) or 'none'}")
    return lines + [
        f"  {name} differs from the release's file, its form was checked (sha256 {sha256(source / name)})"
        for name, digest in DIGESTS.items()
        if not matches(source / name, digest)
    ]
