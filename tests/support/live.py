"""Corpora of parts of the sample, and what an index answers."""

import json
from collections.abc import Sequence
from pathlib import Path

from qbe import Facet, Paper, Query
from qbe.corpus.json_formats import write_jsonl
from qbe.index.index import Index
from support.searching import first_stage

QUERIES = ((None, "s001"), (Facet.METHOD, "s036"), (Facet.RESULT, "s100"), (Facet.BACKGROUND, "s128"))
POOL = [f"s{number:03d}" for number in range(1, 129, 3)]


def corpus(folder: Path, name: str, papers: Sequence[Paper]) -> str:
    """A corpus file of these papers."""
    path = folder / f"{name}.jsonl"
    with path.open("wb") as stream:
        write_jsonl(papers, stream)
    return str(path)


def raw_corpus(folder: Path, name: str, papers: Sequence[Paper]) -> str:
    """The same without labels."""
    path = folder / f"{name}.jsonl"
    lines = (
        json.dumps(
            {"paper_id": paper.paper_id, "title": paper.title, "abstract": [s.text for s in paper.sentences]}
        )
        for paper in papers
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def rankings(
    folder: Path, papers: Sequence[Paper], stages: Sequence[str] = ("bm25", "dense", "fused")
) -> list:
    """Hits with scores and matches of four queries, over all and in a pool, by each first stage.

    ``papers`` are those of the sample that the index may hold; queries and pools name no others.
    """
    ids = {paper.paper_id for paper in papers}
    queries = [
        Query(paper, facet) for facet, paper_id in QUERIES for paper in papers if paper.paper_id == paper_id
    ]
    pool = [paper_id for paper_id in POOL if paper_id in ids]
    assert queries
    with Index(folder) as index:
        pipelines = [first_stage(index, stage) for stage in stages]
        return [
            pipeline.search(query, 200, chosen, explain=True)
            for pipeline in pipelines
            for query in queries
            for chosen in (None, pool)
        ]
