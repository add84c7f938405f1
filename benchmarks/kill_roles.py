"""The processes of `benchmarks.kills`: a writer that goes on until it is killed, and readers that check the
index.

Each paper's title ends in the number of the commit that brought it. Before each write the writer notes in a
journal which papers there will be, by which commit, so that the contents of an index can be compared with
what was committed, whenever the writer was killed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from qbe.index.building.compaction import compact

from qbe.cli import common as _cli
from qbe.corpus import read_jsonl, write_jsonl
from qbe.index import jvm as _jvm
from qbe.index.building.changes import append_papers, delete_papers
from qbe.index.building.settings import BuildSettings
from qbe.index.candidates import FaissCandidates
from qbe.index.index import Index
from qbe.index.lucene import LuceneSearch
from qbe.index.opening import build_index, open_index
from qbe.query import Query
from qbe.search.session import Pipeline
from qbe.search.stages import Fused
from qbe.types import Paper

CORPUS, JOURNAL, INDEX = "corpus.jsonl", "journal.jsonl", "index"
FEWEST = 20
"""Papers that the writer never goes below."""

Papers = Mapping[str, int]
"""Id -> the commit that brought the paper."""


def begin(work: Path, encoder: str) -> None:
    """Build the index of the first papers of ``work``'s corpus."""
    first = {paper.paper_id: paper for paper in itertools.islice(read_jsonl(work / CORPUS), 2 * FEWEST)}
    build_index(work / INDEX, [_batch(work, first, 0)], BuildSettings(encoder=encoder)).close()
    _note(work, 0, dict.fromkeys(first, 0))


def write(work: Path, seed: int) -> Iterator[int]:
    """Append, update, delete and compact without end; yields the generation before each write."""
    corpus = {paper.paper_id: paper for paper in read_jsonl(work / CORPUS)}
    chance = random.Random(seed)
    while True:
        with open_index(work / INDEX) as index:
            generation = index.generation + 1
        yield generation - 1
        now = expected(work, generation - 1)
        absent = sorted(corpus.keys() - now.keys())
        kind = chance.choices(("append", "update", "delete", "compact"), (4, 2, 3, 1))[0]
        if kind == "append" and absent:
            chosen = chance.sample(absent, min(len(absent), chance.randint(1, 6)))
            _add(work, {paper_id: corpus[paper_id] for paper_id in chosen}, generation, now, update=False)
        elif kind == "update":
            chosen = [*chance.sample(sorted(now), 3), *absent[:1]]
            _add(work, {paper_id: corpus[paper_id] for paper_id in chosen}, generation, now, update=True)
        elif kind == "delete" and len(now) > FEWEST:
            chosen = chance.sample(sorted(now), chance.randint(1, min(8, len(now) - FEWEST)))
            kept = {paper_id: commit for paper_id, commit in now.items() if paper_id not in chosen}
            _note(work, generation, kept)
            delete_papers(work / INDEX, chosen)
        elif kind == "compact":
            _note(work, generation, now)
            compact(work / INDEX)


def _add(work: Path, papers: Mapping[str, Paper], generation: int, now: Papers, *, update: bool) -> None:
    batch = _batch(work, papers, generation)
    _note(work, generation, {**now, **dict.fromkeys(papers, generation)})
    append_papers(work / INDEX, [batch], update=update)


def _batch(work: Path, papers: Mapping[str, Paper], generation: int) -> str:
    """A corpus of the papers, their titles ending in the commit that is to bring them."""
    path = work / "batch.jsonl"
    with path.open("wb") as stream:
        titled = (replace(paper, title=f"{paper.title} {generation}") for paper in papers.values())
        write_jsonl(titled, stream)
    return str(path)


def _note(work: Path, generation: int, papers: Papers) -> None:
    with (work / JOURNAL).open("a") as stream:
        stream.write(f"{json.dumps([generation, papers])}\n")


def expected(work: Path, generation: int) -> Papers:
    """The papers of a commit by the journal's last entry for it; earlier ones are of interrupted writes."""
    for line in reversed((work / JOURNAL).read_text().split("\n")[:-1]):
        noted, papers = json.loads(line)
        if noted == generation:
            return dict(papers)
    raise AssertionError(f"generation {generation} is not in the journal")


def interrupted(work: Path, generation: int) -> bool:
    """Whether a write was under way after the commit of that generation."""
    noted: int = json.loads((work / JOURNAL).read_text().splitlines()[-1])[0]
    return noted > generation


def check(work: Path) -> int:
    """Open the index, raise AssertionError unless it holds what was committed, and return its generation."""
    with open_index(work / INDEX) as index:
        papers = expected(work, index.generation)
        held = {paper.paper_id: int(paper.title.rpartition(" ")[2]) for paper in index.papers.read_from(0)}
        assert held == papers, f"papers {_difference(held, papers)}"
        assert len(index) == index.manifest.corpus["papers"] == len(papers), "counts"
        lucene = lucene_ids(index)
        assert sorted(lucene) == sorted(papers), f"Lucene {_difference(lucene, papers)}"
        faiss = faiss_ids(index)
        assert faiss == papers.keys(), f"FAISS {_difference(faiss, papers)}"
        query = Query(index.paper(min(papers)))
        with Pipeline(index, Fused()) as pipeline:
            hits = pipeline.search(query, len(papers))
        assert len(hits) == len(papers) - 1, f"{len(hits)} hits of {len(papers)} papers"
        return index.generation


def _difference(papers: object, wanted: Papers) -> str:
    return f"found {papers}, expected {dict(wanted)}"


def lucene_ids(index: Index) -> list[str]:
    """The ids of all documents that Lucene finds."""
    every = _jvm.java_class("org.apache.lucene.search.MatchAllDocsQuery")()
    ids = index.papers.ids
    return [ids[row] for row in LuceneSearch(index.lucene, ids).best(every, 100_000).rows.tolist()]


def faiss_ids(index: Index) -> set[str]:
    """The ids of the papers of all sentences that FAISS finds."""
    first = index.sentence_vectors[:1].astype(np.float32)
    source = index.candidate_source()
    assert isinstance(source, FaissCandidates)
    nearest = source.sentences.nearest(first, 1_000_000)[0]
    assert len(set(nearest.tolist())) == index.manifest.corpus["sentences"], "sentences found by FAISS"
    rows = np.searchsorted(index.layout.starts, nearest, side="right") - 1
    return {index.papers.ids[row] for row in rows}


def main(argv: list[str]) -> None:
    """One of the roles as a process of its own: a line is printed whenever something was done."""
    parser = argparse.ArgumentParser(prog="benchmarks.kill_roles")
    parser.add_argument("role", choices=("write", "read"))
    parser.add_argument("work", type=Path)
    parser.add_argument("seed", type=int)
    options = parser.parse_args(argv)
    if options.role == "write":
        for generation in write(options.work, options.seed):
            print(generation, flush=True)
    while True:
        print(check(options.work), flush=True)


if __name__ == "__main__":
    _cli.run("benchmarks.kill_roles", main)
