"""Corpora of parts of the sample, and what an index answers."""

import json
from collections.abc import Sequence
from pathlib import Path

from qbe.corpus import write_jsonl
from qbe.index.index import Index
from qbe.query import Query
from support.searching import first_stage
from qbe.types import Facet, Paper

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
            {"paper_id": one.paper_id, "title": one.title, "abstract": [s.text for s in one.sentences]}
        )
        for one in papers
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
    queries = [Query(paper, facet) for facet, one in QUERIES for paper in papers if paper.paper_id == one]
    pool = [one for one in POOL if one in ids]
    assert queries
    with Index(folder) as index:
        searchers = [first_stage(index, stage) for stage in stages]
        return [
            searcher.search(query, 200, chosen, explain=True)
            for searcher in searchers
            for query in queries
            for chosen in (None, pool)
        ]


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
